package main

import (
	"bufio"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
)

// generate writes random cases with their results: half of them are made by the grammar, half are hand-written inputs with changes.
// A count of 0 is without end.
func generate(inputs string, seed uint64, count int, to io.Writer) error {
	all, err := readInputs(inputs)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(to)
	encoder := encoder(buffered)
	g := newGenerator(all)
	for number, written := uint64(0), 0; count == 0 || written < count; number++ {
		one := g.one(seed, number)
		if one.judge(g.functions) != nil {
			continue
		}
		if err := encoder.Encode(one); err != nil {
			return err
		}
		written++
	}
	return buffered.Flush()
}

func newGenerator(inputs map[string][]testCase) *generator {
	g := &generator{functions: functions()}
	g.names = callable(g.functions)
	for _, topic := range sortedKeys(inputs) {
		g.seeds = append(g.seeds, inputs[topic]...)
	}
	return g
}

// one returns a case that only depends on both numbers.
func (g *generator) one(seed, number uint64) testCase {
	g.random = rand.New(rand.NewPCG(seed, number))
	switch n := g.random.IntN(100); {
	case n < 50:
		return g.template()
	case n < 65:
		return g.singleCall()
	default:
		return g.mutated()
	}
}

// singleCall is a function and its arguments, and nothing else.
func (g *generator) singleCall() testCase {
	g.data = pick(g, datasets)
	if g.chance(50) {
		g.data = g.randomData()
	}
	g.variables = []string{"$"}
	text := "{{ " + g.call(pick(g, g.names), 1) + " }}"
	return testCase{Template: text, Data: g.data.described}
}

var token = regexp.MustCompile("\"(?:[^\"\\\\\n]|\\\\.)*\"|`[^`]*`|[$.]?[A-Za-z_][A-Za-z_0-9]*|[0-9][0-9_.]*|\\{\\{-? ?|-? ?\\}\\}|\\s+|.")

// foreign are tokens that change what an action is.
var foreign = []string{
	"{{", "}}", "{{- ", " -}}", "{{-", "-}}", "|", "(", ")", ".", "$", "$x", ":=", "=", ",", " ", "\n", "\"", "`", "'", "/*", "*/", "end", "else", "if", "range", "with", "define", "template",
	"block", "break", "continue", "nil", "true", "1", "-1", "0x", "1e", "1i", ".x", ".a.b", "undefined", "\\", "é", "0", "\"s\"", "'c'", "''", "1.5", "else if true", "{{end}}", "{{else}}",
}

// mutated is a hand-written input with a few changes.
func (g *generator) mutated() testCase {
	one := pick(g, g.seeds)
	one.Output, one.Error = nil, ""
	if g.chance(20) {
		one.Data = pick(g, datasets).described
	}
	if one.Templates != nil {
		one.Templates = append([][2]string(nil), one.Templates...)
		at := g.random.IntN(len(one.Templates))
		one.Templates[at][1] = g.mutate(one.Templates[at][1])
		return one
	}
	one.Template = g.mutate(one.Template)
	return one
}

func (g *generator) mutate(text string) string {
	tokens := token.FindAllString(text, -1)
	other := token.FindAllString(pick(g, g.seeds).Template, -1)
	if len(tokens) == 0 {
		return pick(g, foreign)
	}
	for range 1 + g.random.IntN(3) {
		at := g.random.IntN(len(tokens))
		switch g.random.IntN(9) {
		case 0:
			tokens[at] = ""
		case 1:
			tokens[at] += pick(g, foreign)
		case 2:
			tokens[at] = pick(g, foreign)
		case 3:
			tokens[at] = pick(g, tokens)
		case 4, 5:
			if len(other) > 0 {
				tokens[at] = pick(g, other)
			}
		case 6:
			tokens[at] = g.literal()
		case 7:
			if _, known := g.functions[tokens[at]]; known {
				tokens[at] = pick(g, g.names)
			} else {
				tokens[at] = g.field0()
			}
		case 8:
			second := g.random.IntN(len(tokens))
			tokens[at], tokens[second] = tokens[second], tokens[at]
		}
	}
	return strings.Join(tokens, "")
}

// field0 is a field without knowing the data.
func (g *generator) field0() string {
	return pick(g, []string{".", ".a", ".b", ".c", ".d", ".d.x", ".missing", "$", "$.a", ".KubeVersion", ".MaxPods"})
}
