#!/bin/sh
# What the tests of pages need: a browser, from Debian, and axe-core, from the package index. Needs root for the browser.
set -e
command -v chromium > /dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends chromium; }
"${1:?the environment\'s Python}" -m pip install --quiet --disable-pip-version-check --no-deps axe-core-python
