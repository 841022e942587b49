"""Keeps objects in the Kubernetes of a k3s server, with nothing but its kubectl."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: kubernetes_objects
short_description: Creates, updates or deletes Kubernetes objects by kubectl
version_added: 0.1.0
description:
  - Asks first what would change, so that nothing is applied that is there already. The machine
    needs kubectl and no Python library of Kubernetes.
attributes:
  check_mode: {support: full, description: Says what it would do.}
  diff_mode: {support: full, description: Shows what C(kubectl diff) shows; it masks Secrets.}
options:
  definition:
    description:
      - The objects as YAML, or one JSON list. With O(state=absent) kinds, names and namespaces
        are enough.
    type: str
    required: true
  state:
    description: Whether they are to be there.
    type: str
    choices: [present, absent]
    default: present
  kubectl:
    description: The command, in words.
    type: list
    elements: str
    default: [/usr/local/bin/k3s, kubectl]
author: The Leadline authors
"""

EXAMPLES = """
- name: A namespace
  leadline.edge.kubernetes_objects:
    definition: |
      {apiVersion: v1, kind: Namespace, metadata: {name: lab}}
"""

RETURN = """
objects:
  description: What kubectl said of each that was changed, or the names of those to be deleted.
  type: list
  elements: str
  returned: always
"""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "definition": {"type": "str", "required": True},
            "state": {"choices": ["present", "absent"], "default": "present"},
            "kubectl": {
                "type": "list",
                "elements": "str",
                "default": ["/usr/local/bin/k3s", "kubectl"],
            },
        },
        supports_check_mode=True,
    )
    if module.params["state"] == "present":
        differs, shown = _kubectl(module, "diff", good=(0, 1))
        said = ""
        if differs and not module.check_mode:
            _, said = _kubectl(module, "apply")
        # A line for each object, of which those are told that did change.
        objects = [line for line in said.splitlines() if not line.endswith(" unchanged")]
        module.exit_json(changed=bool(differs), objects=objects, diff={"prepared": shown})
    _, names = _kubectl(module, "get", "--ignore-not-found", "-o", "name")
    if names and not module.check_mode:
        _kubectl(module, "delete", "--ignore-not-found")
    diff = {"before": names, "after": ""}
    module.exit_json(changed=bool(names), objects=names.splitlines(), diff=diff)


def _kubectl(module: AnsibleModule, *words: str, good: tuple[int, ...] = (0,)) -> tuple[int, str]:
    """The exit code and the output; a code that is not `good` ends the module."""
    command = [*module.params["kubectl"], *words, "-f", "-"]
    code, said, complaint = module.run_command(command, data=module.params["definition"])
    if code not in good:
        last = (complaint.strip() or said.strip() or f"exit code {code}").splitlines()[-1]
        module.fail_json(msg=f"kubectl {words[0]}: {last}", rc=code)
    return code, said


if __name__ == "__main__":
    main()
