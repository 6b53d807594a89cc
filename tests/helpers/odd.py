"""What may stand in a file in place of what should."""

import json

#: in place of a field's value, as text of JSON
ODD = (
    *("null", "true", "-1", "-0.5", "0", "1e308", "1e999", "-1e17", "NaN", "Infinity", "9" * 30, "9" * 5000),
    *('""', '"x"', '"\\ud800"', '"\\u0000\\u202e"', json.dumps("y" * 200_000), "[]", "{}", "[1]", '{"a": 1}'),
    *("[" * 3000 + "]" * 3000, '{"a":' * 500 + "1" + "}" * 500, "01", "'x'", '"../../x"'),
)


def fields(value, path=()):
    """The place of each value in nested lists and dictionaries, with its key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from fields(inner, (*path, key))


def changed(data, path, text):
    """JSON of the data with another value there, or without it where text is None."""
    copy = json.loads(json.dumps(data))
    *outer, last = path
    inner = copy
    for key in outer:
        inner = inner[key]
    if text is None:
        del inner[last]
        return json.dumps(copy)
    inner[last] = "@here@"
    return json.dumps(copy).replace('"@here@"', text)
