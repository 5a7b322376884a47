"""Links of pages to files outside docs/ lead to the repository; a file that does not exist is an error.

In the search guides come first, and decisions last: a word in a title counts a thousand times more than one in a text.
"""

import logging
import pathlib
import posixpath
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")
BOOSTS = {"how-to/": 8, "tutorials/": 2, "decisions/": 0.0001}
log = logging.getLogger("mkdocs.hooks.links")


def on_page_markdown(markdown, page, config, files):
    for folder, boost in BOOSTS.items():
        if page.file.src_uri.startswith(folder):
            page.meta.setdefault("search", {"boost": boost})
    here = posixpath.dirname(page.file.src_uri)

    def leads(match):
        path = posixpath.normpath(posixpath.join("docs", here, match[2]))
        if path.startswith("docs/"):
            return match[0]
        target = ROOT / path
        if not target.exists():
            log.warning("%s: %s does not exist", page.file.src_uri, match[2])
        kind = "tree" if target.is_dir() else "blob"
        return f"{match[1]}{config.repo_url.rstrip('/')}/{kind}/main/{path}{match[3]}"

    return LINK.sub(leads, markdown)
