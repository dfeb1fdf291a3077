"""openapi.yaml as the C source of the text that /v1/openapi.json answers: openapi.py VERSION <openapi.yaml.
A key that stands twice, or whose reading depends on the version of YAML, ends the build with its line."""

import json
import sys

import yaml


class Strict(yaml.SafeLoader):
    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str):
                sys.exit(f"openapi.yaml:{key.start_mark.line + 1}: the key {key.value} is no text: quote it")
            if name in seen:
                sys.exit(f"openapi.yaml:{key.start_mark.line + 1}: the key '{name}' stands twice")
            seen.add(name)
        return super().construct_mapping(node, deep)


def main():
    description = yaml.load(sys.stdin, Strict)
    description["info"]["version"] = sys.argv[1]
    text = json.dumps(description, separators=(",", ":"))  # ASCII
    print('#include "api/openapi.h"\n\nconst char openapi_json[] =')
    for at in range(0, len(text), 80):
        print('    "' + text[at : at + 80].replace("\\", "\\\\").replace('"', '\\"').replace("?", "\\?") + '"')
    print("    ;")
    print(f"const size_t openapi_json_size = {len(text)};")


main()
