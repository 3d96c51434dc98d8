package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// What types that decode themselves take.
var decoders = map[reflect.Type]string{
	reflect.TypeFor[metav1.Duration]():            "duration",
	reflect.TypeFor[metav1.Time]():                "time",
	reflect.TypeFor[resource.Quantity]():          "quantity",
	reflect.TypeFor[resource.QuantityValue]():     "quantity",
	reflect.TypeFor[logsapi.TimeOrMetaDuration](): "duration-or-nanoseconds",
}

// writeFields writes the fields of KubeletConfiguration, and of every struct in it, as a JSON array of "Struct.field type". A
// type is string, bool, int32, int64, uint32, float64, one of the decoders above, []T, map[string]T, or a struct's name.
func writeFields() error {
	walk := walker{structs: map[string]reflect.Type{}}
	if err := walk.add(reflect.TypeFor[v1beta1.KubeletConfiguration]()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(walk.fields)
}

type walker struct {
	structs map[string]reflect.Type
	fields  []string
}

// add adds the fields of a struct, once.
func (w *walker) add(t reflect.Type) error {
	switch known, seen := w.structs[t.Name()]; {
	case seen && known == t:
		return nil
	case seen:
		return fmt.Errorf("two structs are called %s", t.Name())
	}
	w.structs[t.Name()] = t
	return w.addFields(t.Name(), t)
}

func (w *walker) addFields(name string, t reflect.Type) error {
	for i := range t.NumField() {
		field := t.Field(i)
		key, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		var err error
		switch {
		case key == "-":
		// Since 1.37, the tags of embedded structs don't say it.
		case strings.Contains(options, "inline"), field.Anonymous && key == "":
			err = w.addFields(name, field.Type)
		case key == "":
			err = fmt.Errorf("%s.%s has no name in JSON", name, field.Name)
		default:
			var kind string
			kind, err = w.kind(field.Type)
			w.fields = append(w.fields, fmt.Sprintf("%s.%s %s", name, key, kind))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kind names a type, and adds the structs in it.
func (w *walker) kind(t reflect.Type) (string, error) {
	if t.Kind() == reflect.Pointer {
		return w.kind(t.Elem())
	}
	if kind, ok := decoders[t]; ok {
		return kind, nil
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return "", fmt.Errorf("%s decodes itself: say in decoders what it takes", t)
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Float64:
		return t.Kind().String(), nil
	case reflect.Slice:
		element, err := w.kind(t.Elem())
		return "[]" + element, err
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return "", fmt.Errorf("%s has keys that are no strings", t)
		}
		element, err := w.kind(t.Elem())
		return "map[string]" + element, err
	case reflect.Struct:
		return t.Name(), w.add(t)
	}
	return "", fmt.Errorf("%s is of no kind that is known here", t)
}
