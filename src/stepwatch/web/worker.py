"""A worker: a separate process that answers one question at a time, over its standard input and output.

It writes nothing anywhere else.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from stepwatch.platforms import limit_memory
from stepwatch.web.limits import give_large_blocks_back
from stepwatch.web.looking import look_at
from stepwatch.web.replies import reply_or_error, reply_to
from stepwatch.web.wire import LENGTHS, Asked, packed

_WARMING = b"\n".join(b"iter %d: loss 4.2000, time 100.00ms, mfu 9.00%%" % number for number in range(60))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to us as well, but the server decides
    limit_memory(4 * 10**9)  # the most that a hostile log can use, if the system enforces it
    give_large_blocks_back()
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that no library can spoil a frame
    for media in ("json", "page"):  # loads what is only loaded when first used
        reply_to(Asked("explain", "text/plain", [["format", media]], _WARMING, len(_WARMING), "en"))
    replies.write(LENGTHS.pack(0, 0))  # ready
    replies.flush()
    questions = sys.stdin.buffer
    while len(lengths := questions.read(LENGTHS.size)) == LENGTHS.size:  # else the server is gone
        head, body = LENGTHS.unpack(lengths)
        asked = Asked(**json.loads(questions.read(head)), body=questions.read(body))
        reply = reply_or_error(look_at if asked.kind == "look" else reply_to, asked)
        replies.write(packed({"status": reply.status, "media": reply.media}, reply.body))
        replies.write(reply.body)
        replies.flush()
        del asked, reply  # free them before the next question


if __name__ == "__main__":
    main()
