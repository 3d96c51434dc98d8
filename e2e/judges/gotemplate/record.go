package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

const (
	recordedSeed   = 20260801
	recordedRandom = 2500
)

// record writes a file of cases for each file of inputs, and for each topic that is made from tables.
func record(inputs, to string) error {
	all, err := readInputs(inputs)
	if err != nil {
		return err
	}
	makers := map[string]func(*generator) []testCase{
		"made-functions": functionCases, "made-printf": printfCases, "made-random": randomCases, "made-semver": semverCases,
	}
	made := map[string][]testCase{}
	for _, name := range sortedKeys(makers) {
		if _, taken := all[name]; taken {
			return fmt.Errorf("%s is the name of a topic that is made", name)
		}
		// Each topic has a generator of its own, so that no topic depends on another.
		made[name] = makers[name](newGenerator(all))
	}
	g := newGenerator(all)
	maps.Copy(all, made)
	for _, topic := range sortedKeys(all) {
		if err := write(filepath.Join(to, topic+".jsonl"), g, all[topic]); err != nil {
			return fmt.Errorf("%s: %w", topic, err)
		}
	}
	return nil
}

func write(path string, g *generator, cases []testCase) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	buffered := bufio.NewWriter(file)
	encoder := encoder(buffered)
	seen := map[string]bool{}
	kept, dropped := 0, 0
	var data json.RawMessage
	for _, one := range split(cases) {
		key := fmt.Sprint(one.named(), string(one.Data))
		if seen[key] {
			continue
		}
		seen[key] = true
		if err := one.judge(g.functions); err != nil {
			dropped++
			if !strings.HasPrefix(filepath.Base(path), "made-") {
				fmt.Fprintf(os.Stderr, "%s: %s: %v\n", filepath.Base(path), one.named(), err)
			}
			continue
		}
		kept++
		// Data stands in a line of its own, for all cases up to the next such line.
		if !bytes.Equal(one.Data, data) {
			data = one.Data
			alone := map[string]json.RawMessage{"data": data}
			if data == nil {
				alone["data"] = json.RawMessage("null")
			}
			if err := encoder.Encode(alone); err != nil {
				return err
			}
		}
		one.Data = nil
		if err := encoder.Encode(one); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "%s: %d cases, %d left out\n", filepath.Base(path), kept, dropped)
	return buffered.Flush()
}

// split makes a case of each action of a line of actions that stand for themselves: the first error would hide the others.
func split(cases []testCase) []testCase {
	var all []testCase
	for _, one := range cases {
		parts := strings.Split(one.Template, "}} {{")
		if len(parts) == 1 || alone.MatchString(one.Template) || !strings.HasPrefix(parts[0], "{{") {
			all = append(all, one)
			continue
		}
		for at, part := range parts {
			if at > 0 {
				part = "{{" + part
			}
			if at < len(parts)-1 {
				part += "}}"
			}
			all = append(all, testCase{Template: part, Data: one.Data})
		}
	}
	return all
}

var alone = regexp.MustCompile(`\$[a-z]+ :?=|\b(if|range|with|define|block|template|end)\b|\[%`)

func randomCases(g *generator) []testCase {
	var cases []testCase
	for number := uint64(0); len(cases) < recordedRandom; number++ {
		one := g.one(recordedSeed, number)
		// Long ones take space and show no more.
		if len(one.Template)+len(one.Data) < 400 && one.judge(g.functions) == nil && (one.Output == nil || len(*one.Output) < 400) && len(one.Error) < 300 {
			cases = append(cases, one)
		}
	}
	return cases
}

var callData = describe(`{"s":"text","n":null,"i":{"$int32":7},"p":{"$*string":"pointed"},"np":{"$*string":null},"l":["b",1],"m":{"k":"v"},"ns":{"$[]string":null},"cp":{"$v1alpha1.CloudProvider":"aws"},"ip":{"$net.IP":"10.0.0.1"}}`)

// functionCases call every function with good arguments, with wrong numbers of arguments, and with wrong types.
func functionCases(g *generator) []testCase {
	g.data = callData
	var cases []testCase
	add := func(text string) {
		cases = append(cases, testCase{Template: "{{" + text + "}}", Data: callData.described})
	}
	wrong := []string{"nil", "1", `"a"`, "1.5", "true", ".l", ".m", ".n", ".p", ".np", ".i", ".cp", ".ip", ".ns", "(list)", "(dict)"}
	for number, name := range g.names {
		g.random = rand.New(rand.NewPCG(recordedSeed, uint64(number)))
		g.variables = []string{"$"}
		add(name)
		for _, one := range wrong {
			add(name + " " + one)
		}
		for range 4 {
			add(name + " " + pick(g, wrong) + " " + pick(g, wrong))
		}
		for range 3 {
			add(name + " " + pick(g, wrong) + " " + pick(g, wrong) + " " + pick(g, wrong))
		}
		function, known := g.functions[name]
		good := 8
		if known && reflect.TypeOf(function).NumIn() == 1 {
			good = 5
		}
		for range good {
			add(g.call(name, 0))
		}
		add(strconv.Quote("piped") + " | " + name)
		add(".l | " + name)
		add("3 | " + name)
	}
	return cases
}

// printfCases are verbs and values.
func printfCases(g *generator) []testCase {
	values := describe(`{"i":{"$int32":-7},"u":{"$uint8":200},"f":2.5,"f32":{"$float32":0.1},"s":"a\"ü\n","b":true,"n":null,"l":[1,"x",null,1.5],"ss":{"$[]string":["a","b c"]},"m":{"k":"v","a":1},"ip":{"$net.IP":"10.0.0.1"},"d":{"$v1.Duration":"90s"},"td":{"$time.Duration":"90s"},"cp":{"$v1alpha1.CloudProvider":"aws"},"np":{"$*string":null},"c":{"$resources.filesData":{"KubeVersion":"v1"}},"ms":{"$map[string]string":{"x":"y"}},"nl":{"$[]int":null},"nm":{"$map[string]any":null},"r":128512,"ll":[[1,2],{"a":[true]}]}`)
	operands := []string{
		"0", "42", "-1", ".i", ".u", ".r", "1.0", ".f", "1e21", "1e-7", "100000000.0", ".f32", "-0.0", `""`, ".s", "`a b`", ".b", ".n", ".l", ".ss", ".m", ".ip", ".d", ".td", ".cp", ".np", ".ms",
		".nl", ".nm", ".ll", "'x'", "nil", "(list)", "(dict)", "9223372036854775807", "18446744073709551615.0",
	}
	letters := "vtdqxs"
	flags := []string{"", "-", "0", "5", "-5", "05", "-05", "12"}
	var cases []testCase
	for number, operand := range operands {
		g.random = rand.New(rand.NewPCG(recordedSeed, uint64(number)))
		// One template has many verbs.
		for _, flag := range flags {
			var text strings.Builder
			for at, letter := range letters {
				if at > 0 {
					text.WriteString(" ")
				}
				text.WriteString("{{printf \"[%" + flag + string(letter) + "]\" " + operand + "}}")
			}
			cases = append(cases, testCase{Template: text.String(), Data: values.described})
		}
	}
	return cases
}

// semverCases are constraints and versions.
func semverCases(g *generator) []testCase {
	var cases []testCase
	g.random = rand.New(rand.NewPCG(recordedSeed, 0))
	for _, constraint := range constraints {
		var text strings.Builder
		for _, version := range versions[:6] {
			fmt.Fprintf(&text, "{{semverCompare %q %q}} ", constraint, version)
		}
		cases = append(cases, testCase{Template: text.String()})
	}
	part := func() string { return pick(g, []string{"0", "1", "2", "10", "33", "x", "*", "X", "01", ""}) }
	version := func(wild bool) string {
		text := pick(g, []string{"", "v"}) + pick(g, []string{"0", "1", "2"})
		for range g.random.IntN(3) {
			next := part()
			for !wild && strings.ContainsAny(next, "xX*") {
				next = part()
			}
			text += "." + next
		}
		return text + pick(g, []string{"", "", "", "-alpha", "-rc.1", "-0", "+b", "-alpha.1+b.2", "-01", "-"})
	}
	operators := []string{"", "=", "!=", ">", "<", ">=", "=>", "<=", "=<", "~", "~>", "^", "==", ">>", "> ", "~ "}
	for range 400 {
		constraint := pick(g, operators) + version(true)
		for g.chance(35) {
			constraint += pick(g, []string{", ", " ", " || ", "||", " - ", ","}) + pick(g, operators) + version(true)
		}
		cases = append(cases, testCase{Template: fmt.Sprintf("{{semverCompare %q %q}}", constraint, version(false))})
	}
	for range 60 {
		cases = append(cases, testCase{Template: fmt.Sprintf(`{{with semver %q}}{{.}} {{.Major}} {{.Minor}} {{.Patch}} {{.Prerelease}} {{.Metadata}} {{.Original}}{{end}}`, version(false))})
	}
	return cases
}
