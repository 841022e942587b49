package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const schedulerArg = "kube-scheduler-arg"

// readSchedulerArgs reads config.yaml and then config.yaml.d/*.yaml by name, as k3s does: a later
// file replaces what an earlier one says, and a key that ends with + adds to it. The one setting
// that is known here is kube-scheduler-arg; like k3s it refuses to start with an unknown one.
func readSchedulerArgs(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "config.yaml.d", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var args []string
	for _, file := range append([]string{filepath.Join(dir, "config.yaml")}, files...) {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		var settings map[string]any
		if err := yaml.Unmarshal(text, &settings); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			if strings.TrimSuffix(key, "+") != schedulerArg {
				return nil, fmt.Errorf("%s: flag provided but not defined: -%s", file, key)
			}
			if key == schedulerArg {
				args = nil
			}
			args = append(args, asFlags(settings[key])...)
		}
	}
	return args, nil
}

// asFlags takes one argument or a list of them, without the dashes.
func asFlags(value any) []string {
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}
	var flags []string
	for _, each := range list {
		flags = append(flags, fmt.Sprintf("--%v", each))
	}
	return flags
}
