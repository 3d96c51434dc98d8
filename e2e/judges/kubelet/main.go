// Command kubelet judges configurations of the kubelet as the kubelet of one minor version does when it starts: it decodes, merges, sets defaults
// and validates them with Kubernetes' own code.
//
// It reads a JSON array of texts on standard input and writes an array of arrays of complaints, in the same order. A text is a
// configuration file, with its drop-ins behind it in their order, each after a line "---". Unlike the kubelet, it decodes each file strictly,
// so that an unknown or duplicate field is a complaint.
//
// With the argument "fields" it reads nothing and writes the fields of the configuration instead, see writeFields; with "gates", the feature
// gates, see writeGates.
//
// Each minor version has its own module file. Of the module k8s.io/kubernetes, osm_judges::kubelet keeps only what this needs.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	metricsfeatures "k8s.io/component-base/metrics/features"
	versioned "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	// What the package of features has not registered, the kubelet's own packages do.
	for _, add := range []func(featuregate.MutableVersionedFeatureGate) error{
		logsapi.AddFeatureGates, metricsfeatures.AddFeatureGates,
	} {
		if err := add(utilfeature.DefaultMutableFeatureGate); err != nil {
			return err
		}
	}
	switch {
	case len(os.Args) > 1 && os.Args[1] == "fields":
		return writeFields()
	case len(os.Args) > 1 && os.Args[1] == "gates":
		return writeGates()
	}
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		return err
	}
	_, codecs, err := scheme.NewSchemeAndCodecs(serializer.EnableStrict)
	if err != nil {
		return err
	}
	answers := make([][]string, len(texts))
	for i, text := range texts {
		answers[i] = complaints(judge(codecs, strings.Split(text, "\n---\n")))
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}

// judge does what NewKubeletCommand in cmd/kubelet/app/server.go does with a configuration file and its drop-ins.
func judge(codecs *serializer.CodecFactory, files []string) (err error) {
	// Defaulting panics if a feature gate can't be set.
	defer func() {
		if said := recover(); said != nil {
			err = fmt.Errorf("%v", said)
		}
	}()
	object, _, err := codecs.UniversalDecoder().Decode([]byte(files[0]), nil, nil)
	if err != nil {
		return err
	}
	internal, ok := object.(*config.KubeletConfiguration)
	if !ok {
		return errors.New("kind: is no KubeletConfiguration")
	}
	// As resolveRelativePaths in pkg/kubelet/kubeletconfig/configfiles/configfiles.go.
	for _, path := range config.KubeletConfigurationPathRefs(internal) {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join("/etc/kubernetes", *path)
		}
	}
	if err := merge(codecs, internal, files[1:]); err != nil {
		return err
	}
	// Whether this machine has cgroup v1 says nothing about those that are judged.
	internal.FailCgroupV1 = false
	return validation.ValidateKubeletConfiguration(internal, utilfeature.DefaultFeatureGate)
}

// merge does what mergeKubeletConfigurations does there.
func merge(codecs *serializer.CodecFactory, internal *config.KubeletConfiguration, dropIns []string) error {
	base := &versioned.KubeletConfiguration{}
	if err := v1beta1.Convert_config_KubeletConfiguration_To_v1beta1_KubeletConfiguration(internal, base, nil); err != nil {
		return err
	}
	merged, err := json.Marshal(base)
	if err != nil {
		return err
	}
	for _, text := range dropIns {
		if _, _, err := codecs.UniversalDeserializer().Decode([]byte(text), nil, nil); err != nil {
			return err
		}
		patch, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			return err
		}
		if merged, err = jsonpatch.MergePatch(merged, patch); err != nil {
			return err
		}
	}
	result := &versioned.KubeletConfiguration{}
	if err := json.Unmarshal(merged, result); err != nil {
		return err
	}
	v1beta1.SetDefaults_KubeletConfiguration(result)
	return v1beta1.Convert_v1beta1_KubeletConfiguration_To_config_KubeletConfiguration(result, internal, nil)
}

// complaints lists the errors that one error holds.
func complaints(err error) []string {
	all := []string{}
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, err := range strict.Errors() {
			all = append(all, err.Error())
		}
		return all
	}
	var several utilerrors.Aggregate
	switch {
	case err == nil:
	case errors.As(err, &several):
		for _, err := range several.Errors() {
			all = append(all, err.Error())
		}
	default:
		all = append(all, strings.TrimSpace(err.Error()))
	}
	return all
}
