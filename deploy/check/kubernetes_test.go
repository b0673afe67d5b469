package check_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The objects of the example.
type manifests struct {
	secret  corev1.Secret
	claim   corev1.PersistentVolumeClaim
	service corev1.Service
	runner  appsv1.Deployment
}

// readManifests decodes kubernetes.yaml into the types of the API. Unknown and repeated keys,
// and values of a wrong type, are errors.
func readManifests(t *testing.T) (m manifests) {
	t.Helper()
	seen := map[string]bool{}
	for _, text := range strings.Split(read(t, "kubernetes.yaml"), "\n---\n")[1:] {
		var kind struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Fatal(err)
		}
		into, ok := map[string]any{
			"v1 Secret": &m.secret, "v1 PersistentVolumeClaim": &m.claim, "v1 Service": &m.service, "apps/v1 Deployment": &m.runner,
		}[kind.APIVersion+" "+kind.Kind]
		if !ok || seen[kind.Kind] {
			t.Fatalf("got %s %s, want one Secret, PersistentVolumeClaim, Service and Deployment", kind.APIVersion, kind.Kind)
		}
		seen[kind.Kind] = true
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Errorf("%s: %v", kind.Kind, err)
		}
	}
	if len(seen) != 4 {
		t.Fatalf("got %v, want four kinds", seen)
	}
	return m
}

func TestManifestsFitTogether(t *testing.T) {
	t.Parallel()
	m := readManifests(t)
	pod := m.runner.Spec.Template
	for key, value := range m.service.Spec.Selector {
		if pod.Labels[key] != value || m.runner.Spec.Selector.MatchLabels[key] != value {
			t.Errorf("got pods with %v, want %s=%s, which the service and the deployment select", pod.Labels, key, value)
		}
	}
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
		if v.Secret != nil && v.Secret.SecretName != m.secret.Name || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName != m.claim.Name {
			t.Errorf("volume %s: got a secret or claim of another name", v.Name)
		}
	}
	ports := map[string]bool{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, mount := range c.VolumeMounts {
			if !volumes[mount.Name] {
				t.Errorf("container %s: got a mount of %s, want one of %v", c.Name, mount.Name, volumes)
			}
		}
		for _, p := range c.Ports {
			ports[p.Name] = true
		}
	}
	runner := pod.Spec.Containers[0]
	for what, port := range map[string]string{
		"service": m.service.Spec.Ports[0].TargetPort.StrVal, "startup": runner.StartupProbe.HTTPGet.Port.StrVal,
		"liveness": runner.LivenessProbe.HTTPGet.Port.StrVal, "readiness": runner.ReadinessProbe.HTTPGet.Port.StrVal,
	} {
		if !ports[port] {
			t.Errorf("%s: got port %q, want one of %v", what, port, ports)
		}
	}
	if !slices.Contains(runner.Args, "--allow-host="+m.service.Name) {
		t.Errorf("got %q, want that the runner accepts the name of the service, %s", runner.Args, m.service.Name)
	}
}

// TestPodRuns does what the pod does, with directories and a port of its own: it copies the
// credentials, starts the runner, waits for its probes, and drains it with the hook.
func TestPodRuns(t *testing.T) {
	t.Parallel()
	pod := readManifests(t).runner.Spec.Template.Spec
	root := t.TempDir()
	for _, dir := range []string{"state", "workspace", "secret", "run/maestro", "home/maestro"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	written(t, root, "secret/token", strings.Repeat("client", 8))
	written(t, root, "secret/control-token", strings.Repeat("control", 8))
	addr, port := free(t)
	here := strings.NewReplacer("/state", root+"/state", "/workspace", root+"/workspace", "/secret", root+"/secret",
		"/run/maestro", root+"/run/maestro", "/home/maestro", root+"/home/maestro", "0.0.0.0:8080", addr, ":8080/", ":"+port+"/", "sleep 5", "true")
	shell := func(c []string) {
		t.Helper()
		words := make([]string, len(c))
		for i, word := range c {
			words[i] = here.Replace(word)
		}
		output(t, words[0], words[1:]...)
	}
	for _, c := range pod.InitContainers {
		shell(slices.Concat(c.Command, c.Args))
	}
	runner := pod.Containers[0]
	args := make([]string, len(runner.Args))
	for i, arg := range runner.Args {
		args[i] = here.Replace(arg)
	}
	cmd := exec.Command(maestro, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, v := range runner.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+here.Replace(v.Value))
	}
	start(t, "maestro listens on ", cmd)
	probe := func(path string) int {
		t.Helper()
		status, _ := fetch(t, "http://"+addr+path, "")
		return status
	}
	for what, p := range map[string]string{"startup": runner.StartupProbe.HTTPGet.Path, "liveness": runner.LivenessProbe.HTTPGet.Path, "readiness": runner.ReadinessProbe.HTTPGet.Path} {
		if got := probe(p); got != http.StatusOK {
			t.Errorf("%s: got %d, want 200", what, got)
		}
	}
	shell(runner.Lifecycle.PreStop.Exec.Command)
	if live, ready := probe(runner.LivenessProbe.HTTPGet.Path), probe(runner.ReadinessProbe.HTTPGet.Path); live != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("after the hook: got %d and %d, want a runner that lives and is not ready", live, ready)
	}
	found, err := filepath.Glob(root + "/state/runner-snapshots/*.json")
	if err != nil || len(found) != 1 {
		t.Fatalf("got %v, %v, want one manifest", found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil || !json.Valid(text) {
		t.Errorf("got %s, %v, want a manifest", text, err)
	}
}
