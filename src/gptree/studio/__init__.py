"""A page on which a person teaches: `gptree studio`. Needs the extra `studio`.

The server is thin: `gptree.project` does the work, in one thread; pages are answered from immutable views. The page
itself is TypeScript in the folder `web` of the repository; `static` holds what `make web` builds of it.
"""
