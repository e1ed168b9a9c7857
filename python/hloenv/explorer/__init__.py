# SPDX-License-Identifier: Apache-2.0
"""The explorer: rewrites, decisions and measurements in a browser.

`hloenv explore` starts it. `session` has what the page shows and does, `backend` the
child processes that do it, `server` the requests, `page` the same as one file. The
page itself is TypeScript, in the folder `explorer/` of the repository; `static` has it
as built.
"""
