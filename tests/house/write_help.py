"""Rewrites the help texts and the real answers in README.md and docs/: `python -m tests.house.write_help`."""

from __future__ import annotations

from tests.house.pages import PAGES, page_path, rewritten


def main() -> None:
    for page in PAGES:
        text = rewritten(page)
        if text != page_path(page).read_text(encoding="utf-8"):
            page_path(page).write_text(text, encoding="utf-8")
            print(f"wrote {page}")


if __name__ == "__main__":
    main()
