package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	api "k8s.io/client-go/tools/clientcmd/api/v1"
)

// writeKubeconfig writes the kubeconfig for client in one step, so that a reader never sees half
// of it. It is JSON, which every YAML reader takes and the standard library of Python reads too.
func writeKubeconfig(file string, client *rest.Config) error {
	authority, err := os.ReadFile(client.CAFile)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	const name = "test"
	text, err := json.MarshalIndent(api.Config{
		Kind:       "Config",
		APIVersion: "v1",
		Clusters: []api.NamedCluster{{Name: name, Cluster: api.Cluster{
			Server: client.Host, CertificateAuthorityData: authority,
		}}},
		AuthInfos:      []api.NamedAuthInfo{{Name: name, AuthInfo: api.AuthInfo{Token: client.BearerToken}}},
		Contexts:       []api.NamedContext{{Name: name, Context: api.Context{Cluster: name, AuthInfo: name}}},
		CurrentContext: name,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return os.Rename(file+".new", file)
}
