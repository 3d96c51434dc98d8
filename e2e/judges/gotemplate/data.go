package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"time"

	"example.com/operating-system-manager/e2e/judges/gotemplate/providerconfig"
	"example.com/operating-system-manager/e2e/judges/gotemplate/resources"
	v1 "example.com/operating-system-manager/e2e/judges/gotemplate/v1"
	"example.com/operating-system-manager/e2e/judges/gotemplate/v1alpha1"
)

// Typed data is JSON. Null, booleans, strings, arrays and objects are what Go's decoder makes of them: nil, bool, string, []any and
// map[string]any. A number is an int, or a float64 if it has a point or an exponent. An object with one key that starts with "$" is
// a value of another type:
//
//	{"$TYPE": VALUE}    e.g. {"$uint8": 3}, {"$[]string": ["a"]}, {"$*int32": 0}, {"$*string": null}, {"$resources.filesData": {…}}
//
// null as VALUE is the type's zero value, such as a nil pointer.

// named are the types that have a name, apart from Go's own.
var named = map[string]reflect.Type{
	"net.IP":                       reflect.TypeFor[net.IP](),
	"time.Duration":                reflect.TypeFor[time.Duration](),
	"v1.Duration":                  reflect.TypeFor[v1.Duration](),
	"v1alpha1.CloudProvider":       reflect.TypeFor[v1alpha1.CloudProvider](),
	"providerconfig.NetworkConfig": reflect.TypeFor[providerconfig.NetworkConfig](),
	"resources.filesData":          reflect.TypeOf(resources.New()).Elem(),
}

// basic are Go's own types.
var basic = map[string]reflect.Type{
	"any": reflect.TypeFor[any](), "bool": reflect.TypeFor[bool](), "string": reflect.TypeFor[string](),
	"int": reflect.TypeFor[int](), "int8": reflect.TypeFor[int8](), "int16": reflect.TypeFor[int16](),
	"int32": reflect.TypeFor[int32](), "int64": reflect.TypeFor[int64](),
	"uint": reflect.TypeFor[uint](), "uint8": reflect.TypeFor[uint8](), "uint16": reflect.TypeFor[uint16](),
	"uint32": reflect.TypeFor[uint32](), "uint64": reflect.TypeFor[uint64](),
	"float32": reflect.TypeFor[float32](), "float64": reflect.TypeFor[float64](),
}

// typeOf reads the name of a type.
func typeOf(name string) (reflect.Type, error) {
	if known, ok := basic[name]; ok {
		return known, nil
	}
	if known, ok := named[name]; ok {
		return known, nil
	}
	of := []struct {
		prefix string
		make   func(reflect.Type) reflect.Type
	}{
		{"*", reflect.PointerTo},
		{"[]", reflect.SliceOf},
		{"map[string]", func(t reflect.Type) reflect.Type { return reflect.MapOf(basic["string"], t) }},
	}
	for _, kind := range of {
		if rest, ok := strings.CutPrefix(name, kind.prefix); ok {
			element, err := typeOf(rest)
			if err != nil {
				return nil, err
			}
			return kind.make(element), nil
		}
	}
	return nil, fmt.Errorf("unknown type %q", name)
}

// decode makes a value of typed data.
func decode(text []byte) (any, error) {
	if len(text) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var untyped any
	if err := decoder.Decode(&untyped); err != nil {
		return nil, err
	}
	value, err := typed(untyped)
	if err != nil || !value.IsValid() {
		return nil, err
	}
	return value.Interface(), nil
}

// typed returns the value that describes itself; an invalid one for null.
func typed(untyped any) (reflect.Value, error) {
	switch untyped := untyped.(type) {
	case nil:
		return reflect.Value{}, nil
	case json.Number:
		if strings.ContainsAny(untyped.String(), ".eE") {
			return as(basic["float64"], untyped)
		}
		return as(basic["int"], untyped)
	case map[string]any:
		if len(untyped) == 1 {
			for key, value := range untyped {
				if name, ok := strings.CutPrefix(key, "$"); ok {
					wanted, err := typeOf(name)
					if err != nil {
						return reflect.Value{}, err
					}
					return as(wanted, value)
				}
			}
		}
		return as(reflect.TypeFor[map[string]any](), untyped)
	case []any:
		return as(reflect.TypeFor[[]any](), untyped)
	default:
		return reflect.ValueOf(untyped), nil
	}
}

// as makes a value of a type.
func as(wanted reflect.Type, untyped any) (reflect.Value, error) {
	made := reflect.New(wanted).Elem()
	if untyped == nil {
		return made, nil
	}
	wrong := fmt.Errorf("%v is no %s", untyped, wanted)
	text := fmt.Sprint(untyped)
	switch wanted {
	case named["net.IP"]:
		made.Set(reflect.ValueOf(net.ParseIP(text)))
		return made, nil
	case named["time.Duration"], named["v1.Duration"]:
		duration, err := time.ParseDuration(text)
		if wanted.Kind() == reflect.Struct {
			made.Field(0).SetInt(int64(duration))
		} else {
			made.SetInt(int64(duration))
		}
		return made, err
	}
	switch wanted.Kind() {
	case reflect.Interface:
		value, err := typed(untyped)
		if err == nil && value.IsValid() {
			made.Set(value)
		}
		return made, err
	case reflect.Bool:
		value, ok := untyped.(bool)
		if !ok {
			return made, wrong
		}
		made.SetBool(value)
	case reflect.String:
		value, ok := untyped.(string)
		if !ok {
			return made, wrong
		}
		made.SetString(value)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		value, err := strconv.ParseInt(text, 10, wanted.Bits())
		made.SetInt(value)
		return made, err
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		value, err := strconv.ParseUint(text, 10, wanted.Bits())
		made.SetUint(value)
		return made, err
	case reflect.Float32, reflect.Float64:
		value, err := strconv.ParseFloat(text, wanted.Bits())
		made.SetFloat(value)
		return made, err
	case reflect.Pointer:
		target, err := as(wanted.Elem(), untyped)
		if err != nil {
			return made, err
		}
		made.Set(reflect.New(wanted.Elem()))
		made.Elem().Set(target)
	case reflect.Slice:
		items, ok := untyped.([]any)
		if !ok {
			return made, wrong
		}
		made.Set(reflect.MakeSlice(wanted, 0, len(items)))
		for _, item := range items {
			element, err := as(wanted.Elem(), item)
			if err != nil {
				return made, err
			}
			made.Set(reflect.Append(made, element))
		}
	case reflect.Map:
		entries, ok := untyped.(map[string]any)
		if !ok {
			return made, wrong
		}
		made.Set(reflect.MakeMap(wanted))
		for key, value := range entries {
			element, err := as(wanted.Elem(), value)
			if err != nil {
				return made, err
			}
			made.SetMapIndex(reflect.ValueOf(key), element)
		}
	case reflect.Struct:
		fields, ok := untyped.(map[string]any)
		if !ok {
			return made, wrong
		}
		for name, value := range fields {
			field := made.FieldByName(name)
			if !field.IsValid() {
				return made, fmt.Errorf("%s has no field %s", wanted, name)
			}
			set, err := as(field.Type(), value)
			if err != nil {
				return made, err
			}
			field.Set(set)
		}
	default:
		return made, wrong
	}
	return made, nil
}
