package api

import (
	"net/http"
	"runtime"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	s.answer(w, http.StatusOK, Version{
		GitVersion: s.options.Version, Platform: runtime.GOOS + "/" + runtime.GOARCH, GoVersion: runtime.Version(),
	})
	return nil
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte("ok")) // the client has gone
	return nil
}

// coreVersions, groups and resources answer the first requests of Kubernetes clients.
func (s *Server) coreVersions(w http.ResponseWriter, _ *http.Request) error {
	s.answer(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
		Versions: []string{"v1"}})
	return nil
}

func (s *Server) groups(w http.ResponseWriter, _ *http.Request) error {
	answer := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups: []metav1.APIGroup{}}
	seen := map[string]bool{"": true}
	for _, kind := range Kinds() {
		if seen[kind.Group] {
			continue
		}
		seen[kind.Group] = true
		version := metav1.GroupVersionForDiscovery{GroupVersion: kind.GroupVersion().String(), Version: kind.Version}
		answer.Groups = append(answer.Groups, metav1.APIGroup{
			Name: kind.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
		})
	}
	s.answer(w, http.StatusOK, answer)
	return nil
}

func (s *Server) resources(w http.ResponseWriter, r *http.Request) error {
	desired := schema.GroupVersion{Group: r.PathValue("group"), Version: r.PathValue("version")}
	answer := metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: desired.String(),
	}
	for _, kind := range Kinds() {
		if kind.GroupVersion() != desired {
			continue
		}
		verbs := metav1.Verbs{"get", "list", "watch"}
		if kind.Resource != "events" {
			verbs = append(verbs, "delete")
		}
		answer.APIResources = append(answer.APIResources, metav1.APIResource{
			Name: kind.Resource, Kind: kind.Kind, Namespaced: kind.Namespaced, Verbs: verbs,
		})
	}
	if len(answer.APIResources) == 0 {
		return refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "this host has no API %s", desired)
	}
	s.answer(w, http.StatusOK, answer)
	return nil
}
