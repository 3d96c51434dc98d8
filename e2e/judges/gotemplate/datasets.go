package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// dataset is typed data, and the chains of fields that it has.
type dataset struct {
	described json.RawMessage
	paths     []string
	byType    map[string][]string
	lists     []string
	maps      []string
}

// datasets are what random templates mostly render.
var datasets = []*dataset{
	describe(`{"a":1,"b":"text","c":[1,2,3],"d":{"x":"y","z":null},"e":true,"f":1.5,"g":null,"h":""}`),
	describe(`{"$resources.filesData":{"KubeVersion":"v1.34.1","ClusterDNSIPs":["10.96.0.10","fd00::a"],"CloudProviderName":"aws","KubeletFeatureGates":{"B":true,"A":false},"MaxPods":0,"HTTPProxy":"","KubeReserved":{},"EvictionHard":{"memory.available":"100Mi","nodefs.available":"10%"},"ImageMinimumGCAge":"2m","FlatcarConfig":{"DisableAutoUpdate":true}}}`),
	describe(`{"$*resources.filesData":{"KubeVersion":"v1.33.0","NetworkConfig":{"CIDR":"10.0.0.0/24","Gateway":"10.0.0.1","DNS":{"Servers":["1.1.1.1","8.8.8.8"]},"IPFamily":"IPv4+IPv6"},"MaxPods":110,"NoProxy":"localhost,.svc","InitialTaints":"a=b:NoSchedule","Token":"abcdef.0123456789abcdef","ContainerLogMaxSize":"10Mi","KubeReserved":{"cpu":"200m","memory":"200Mi"},"ExternalCloudProvider":true}}`),
	describe(`{"i8":{"$int8":-8},"u8":{"$uint8":200},"i32":{"$int32":32},"u64":{"$uint64":18446744073709551615},"f32":{"$float32":0.1},"f":2.0,"p":{"$*string":"pointed"},"np":{"$*string":null},"pi":{"$*int32":0},"ss":{"$[]string":["b","a"]},"ns":{"$[]string":null},"ms":{"$map[string]string":{"k":"v","a":"b"}},"nm":{"$map[string]string":null},"ip":{"$net.IP":"192.168.0.1"},"d":{"$v1.Duration":"1m30s"},"td":{"$time.Duration":"1h0m5s"},"cp":{"$v1alpha1.CloudProvider":"gce"},"mi":{"$map[string]int":{"one":1,"two":2}},"li":{"$[]int":[3,1,2]},"pm":{"$*map[string]string":{"x":"1"}},"lm":{"$[]map[string]any":[{"n":"a"},{"n":"b"}]},"any":[{"$int64":5},null,{"$uint":1}]}`),
	describe(`null`),
	describe(`"just a string"`),
	describe(`[1,"two",{"three":3},null]`),
}

func describe(text string) *dataset {
	return newDataset(json.RawMessage(text))
}

func newDataset(described json.RawMessage) *dataset {
	made := &dataset{described: described, byType: map[string][]string{}}
	value, err := decode(described)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", described, err))
	}
	made.walk("", reflect.ValueOf(value), 3)
	if len(made.paths) == 0 {
		made.paths = []string{"."}
	}
	return made
}

// walk notes where values are.
func (d *dataset) walk(path string, value reflect.Value, depth int) {
	for value.IsValid() && value.Kind() == reflect.Interface {
		value = value.Elem()
	}
	if path != "" {
		d.paths = append(d.paths, path)
	}
	if !value.IsValid() || depth == 0 {
		return
	}
	here := path
	if path == "" {
		here = "."
	} else {
		d.byType[value.Type().String()] = append(d.byType[value.Type().String()], path)
	}
	for value.Kind() == reflect.Pointer {
		if value.IsNil() {
			return
		}
		value = value.Elem()
	}
	switch value.Kind() {
	case reflect.Slice:
		d.lists = append(d.lists, here)
	case reflect.Map:
		d.maps = append(d.maps, here)
		keys := map[string]bool{}
		for _, key := range value.MapKeys() {
			keys[key.String()] = true
		}
		for _, key := range sortedKeys(keys) {
			if !strings.ContainsAny(key, ".- ") && key != "" {
				d.walk(path+"."+key, value.MapIndex(reflect.ValueOf(key)), depth-1)
			}
		}
	case reflect.Struct:
		for at := range value.NumField() {
			d.walk(path+"."+value.Type().Field(at).Name, value.Field(at), depth-1)
		}
		if path != "" && value.Type() == named["v1.Duration"] {
			d.paths = append(d.paths, path+".String")
		}
	}
}

// randomData makes a small map of random values.
func (g *generator) randomData() *dataset {
	fields := map[string]json.RawMessage{}
	for _, name := range []string{"a", "b", "c", "k"}[:1+g.random.IntN(4)] {
		fields[name] = g.describe(2)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return newDataset(text)
}

// describe makes random typed data.
func (g *generator) describe(depth int) json.RawMessage {
	raw := func(value any) json.RawMessage {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		return text
	}
	typed := func(name string, value any) json.RawMessage { return raw(map[string]any{"$" + name: value}) }
	n := g.random.IntN(26)
	if depth == 0 {
		n = g.random.IntN(18)
	}
	switch {
	case n < 4:
		return raw(pick(g, texts))
	case n < 7:
		return raw(g.random.IntN(200) - 50)
	case n < 9:
		return json.RawMessage(pick(g, []string{"1.5", "2.0", "-0.25", "1e6", "1e21", "1e-7", "0.0", "100.0"}))
	case n < 11:
		return raw(g.chance(50))
	case n < 12:
		return raw(nil)
	case n < 14:
		name := pick(g, []string{"int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64"})
		return typed(name, g.random.IntN(128))
	case n < 15:
		return typed("float32", json.RawMessage(pick(g, []string{"0.1", "1.5", "3.0", "1e10"})))
	case n < 16:
		return pick(g, []json.RawMessage{
			typed("*string", pick(g, texts)), typed("*string", nil), typed("*int32", 0), typed("*int", 7), typed("*bool", false), typed("*float64", json.RawMessage("1.25")),
		})
	case n < 18:
		return pick(g, []json.RawMessage{
			typed("net.IP", "10.0.0.1"), typed("v1.Duration", "90s"), typed("time.Duration", "1h"), typed("v1alpha1.CloudProvider", "aws"), typed("*v1.Duration", nil), typed("net.IP", "::1"),
		})
	case n < 21:
		items := []json.RawMessage{}
		for range g.random.IntN(4) {
			items = append(items, g.describe(depth-1))
		}
		return raw(items)
	case n < 24:
		fields := map[string]json.RawMessage{}
		for _, name := range []string{"a", "b", "x", "10", "9", "key-1"}[:g.random.IntN(6)] {
			fields[name] = g.describe(depth - 1)
		}
		return raw(fields)
	default:
		return pick(g, []json.RawMessage{
			typed("[]string", []string{"b", "a", ""}), typed("[]int", []int{3, 1}), typed("map[string]string", map[string]string{"x": "1", "y": ""}), typed("[]string", nil),
			typed("map[string]any", nil), typed("map[string]bool", map[string]bool{"t": true, "f": false}), typed("[]any", nil), typed("*map[string]string", map[string]string{"m": "n"}),
			typed("map[string][]string", map[string][]string{"l": {"1", "2"}}), typed("[][]string", [][]string{{"a"}, {}}), typed("[]float64", []float64{1.5, 2}), typed("*[]string", []string{"p"}),
			typed("[]net.IP", []string{"10.0.0.1", "10.0.0.2"}), typed("[]*string", []any{"x", nil}), typed("[]bool", []bool{true}), typed("map[string]int", map[string]int{"a": 1}),
		})
	}
}
