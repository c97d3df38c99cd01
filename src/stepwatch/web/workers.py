"""The workers of a server: a bounded number of processes, each killed and replaced if it takes too long.

One starts with the server, the others when questions wait: a single user needs no more, and each takes memory.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from stepwatch.web.wire import LENGTHS, Asked, Reply, packed

_COMMAND = (sys.executable, "-P", "-m", "stepwatch.web.worker")  # -P: import nothing from the current directory


class Overdue(Exception):
    """The question took too long; its worker was killed."""


class Lost(Exception):
    """The worker ended without an answer: out of memory, or killed from outside."""


class Workers:
    """Questions wait for a free worker. Large ones never take the last one, so that small ones are still answered."""

    def __init__(
        self, count: int, time_s: float, queue_s: float, *, when_asked: bool = False, keep_state: bool = False
    ) -> None:
        """`when_asked`: even the first one starts with the first question, which may never come. `keep_state`: answers
        depend on earlier questions, so that a lost question cannot be repeated."""
        self._to_start = count
        self._starting = 0
        self._waiting = 0
        self._keep_state = keep_state
        self._when_asked = when_asked
        self._time_s = time_s
        self._queue_s = queue_s
        self._idle: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()
        self._large = asyncio.Semaphore(max(count - 1, 1))
        self._all: set[_Worker] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if not self._when_asked:
            self._start_another()
        try:
            yield
        finally:
            self._closing = True
            await asyncio.gather(*(worker.end() for worker in self._all), *self._tasks, return_exceptions=True)

    def _start_another(self) -> None:
        if self._to_start:
            self._to_start -= 1
            self._starting += 1
            self._later(self._start())

    async def ask(self, asked: Asked) -> Reply:
        if len(asked.body) <= 8 * 10**6:  # a small one: any worker may take it
            try:
                return await self._ask(asked, keep=True)
            except Lost:  # most likely killed from outside: a small log does not use up the memory
                if self._keep_state:
                    raise
                return await self._ask(asked, keep=True)
        async with self._large:
            return await self._ask(asked, keep=False)  # frees the memory that a large log used

    async def _ask(self, asked: Asked, *, keep: bool) -> Reply:
        if self._waiting >= self._idle.qsize() + self._starting:
            self._start_another()
        self._waiting += 1
        try:
            async with asyncio.timeout(self._queue_s):
                while not (worker := await self._idle.get()).is_alive():
                    self._later(self._replace(worker))
        except TimeoutError:
            raise Overdue from None
        finally:
            self._waiting -= 1
        answered = False
        try:
            async with asyncio.timeout(self._time_s):
                reply = await worker.ask(asked)
            answered = True
            return reply
        except TimeoutError:
            raise Overdue from None
        except (ConnectionError, asyncio.IncompleteReadError):
            raise Lost from None
        finally:  # also if the question was cancelled, which leaves half an answer in the pipe
            if answered and keep:
                self._idle.put_nowait(worker)
            else:
                self._later(self._replace(worker))

    async def _start(self) -> None:
        try:
            while not self._closing:
                worker = None
                with suppress(OSError, TimeoutError):  # no descriptors, no memory, too many processes
                    worker = await _Worker.start()
                    self._all.add(worker)
                    async with asyncio.timeout(self._queue_s):
                        if await worker.is_warm():
                            self._idle.put_nowait(worker)
                            return
                if worker is not None:
                    await self._end(worker)
                await asyncio.sleep(1.0)  # something is wrong with the machine; it may pass
        finally:
            self._starting -= 1

    async def _replace(self, worker: _Worker) -> None:
        await self._end(worker)
        self._starting += 1
        await self._start()

    async def _end(self, worker: _Worker) -> None:
        self._all.discard(worker)
        await worker.end()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Worker:
    """The server's side of one process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._questions, self._answers = process, process.stdin, process.stdout
        self._ending = False

    @classmethod
    async def start(cls) -> _Worker:
        process = asyncio.create_subprocess_exec(*_COMMAND, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=1 << 20)
        return cls(await process)

    async def is_warm(self) -> bool:
        try:
            await self._answers.readexactly(LENGTHS.size)
        except asyncio.IncompleteReadError:
            return False
        return True

    def is_alive(self) -> bool:
        return self._process.returncode is None and not self._answers.at_eof()

    async def ask(self, asked: Asked) -> Reply:
        head: dict[str, Any] = asked._asdict()
        del head["body"]
        self._questions.write(packed(head, asked.body))
        self._questions.write(asked.body)
        await self._questions.drain()
        head_length, body_length = LENGTHS.unpack(await self._answers.readexactly(LENGTHS.size))
        found = json.loads(await self._answers.readexactly(head_length))
        return Reply(found["status"], found["media"], await self._answers.readexactly(body_length))

    async def end(self) -> None:
        self._questions.close()
        if not self._ending and not self._answers.at_eof():  # asyncio complains if a process is killed twice
            self._process.kill()
        self._ending = True
        await self._process.wait()
