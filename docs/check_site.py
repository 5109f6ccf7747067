"""Check the built site: ``python docs/check_site.py FOLDER``.

Every link inside the site leads to a page and an anchor that exist, nothing is loaded from the internet, and no formula
was left as text between dollar signs.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

LOADED = {("script", "src"), ("img", "src"), ("link", "href")}
VERBATIM = {"pre", "code", "script", "style"}


class Page(HTMLParser):
    """The anchors, links and text of one page."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loaded, self.dollars, self.depth = {""}, [], [], [], 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        """Note anchors and links."""
        attrs = dict(attrs)
        self.anchors.add(attrs.get("id"))
        self.depth += tag in VERBATIM
        for name in {"href", "src"} & set(attrs):
            (self.loaded if (tag, name) in LOADED else self.links).append(attrs[name])

    def handle_endtag(self, tag):
        """Leave text that stands as it is."""
        self.depth -= tag in VERBATIM

    def handle_data(self, data):
        """Note formulas that were not recognised."""
        if not self.depth:
            self.dollars += re.findall(r"\$[^$\n]{1,60}\$", data)


def main(folder):
    """Return what is wrong, one line each."""
    pages = {path.resolve(): Page(path) for path in Path(folder).rglob("*.html")}
    wrong = []
    for path, page in pages.items():
        wrong += [f"{path.name}: formula left as text: {text}" for text in page.dollars]
        for link in page.links + page.loaded:
            url = urlparse(link)
            if url.scheme in ("http", "https"):
                if link in page.loaded:
                    wrong.append(f"{path.name}: loaded from the internet: {link}")
            elif not url.scheme:
                target = (path.parent / unquote(url.path)).resolve() if url.path else path
                if not target.exists():
                    wrong.append(f"{path.name}: no such file: {link}")
                elif target in pages and unquote(url.fragment) not in pages[target].anchors:
                    wrong.append(f"{path.name}: no such anchor: {link}")
    return wrong


if __name__ == "__main__":
    found = main(sys.argv[1])
    sys.exit("\n".join(found) if found else 0)
