"""The text of an HTML page, and what it loads."""

from __future__ import annotations

from html.parser import HTMLParser

BLOCKS = ("tr", "p", "li", "dd", "h1", "h2", "h3", "h4", "caption", "pre", "footer", "title")
END = "\0"


class PageText(HTMLParser):
    """The text of a page outside of scripts and styles, and the references of its tags.

    Attributes:
        text: the text with single spaces.
        lines: the rows of tables, the paragraphs and the headings.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.tags: list[str] = []
        self._shown: list[str] = []
        self.feed(page)
        shown = "".join(self._shown)
        self.text = " ".join(shown.replace(END, "").split())
        self.lines = [line for part in shown.split(END) if (line := " ".join(part.split()))]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")
        self._shown += [END] if tag in BLOCKS else [" "] if tag in ("td", "th", "dt") else []

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] not in (["script"], ["style"]):
            self._shown.append(data)
