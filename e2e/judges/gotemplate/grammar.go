package main

import (
	"fmt"
	"strings"
)

var words = []string{
	"", "\n", " ", "text", "a\n", "  b\n", "\n\n", "\t", "line\n  indented\n", "x=", "\r\n", "{", "}", "} }", "\u00a0", "{ {", "# comment\n", "- item: ", "\"", "'", "<&>", "ü",
}

func (g *generator) words() string { return pick(g, words) }

// action returns an action with its delimiters, sometimes with trim markers.
func (g *generator) action(text string) string {
	left, right := "{{", "}}"
	if g.chance(15) {
		left = "{{- "
	} else if g.chance(50) {
		left = "{{ "
	}
	if g.chance(15) {
		right = " -}}"
	} else if g.chance(50) {
		right = " }}"
	}
	return left + text + right
}

// block returns words and actions.
func (g *generator) block(depth int) string {
	known := len(g.variables)
	var text strings.Builder
	for range 1 + g.random.IntN(3) {
		text.WriteString(g.words())
		text.WriteString(g.node(depth))
	}
	text.WriteString(g.words())
	g.variables = g.variables[:known]
	return text.String()
}

func (g *generator) node(depth int) string {
	n := g.random.IntN(100)
	switch {
	case depth <= 0 || n < 45:
		return g.action(g.pipeline(2))
	case n < 58:
		return g.branch("if", depth)
	case n < 66:
		return g.branch("with", depth)
	case n < 78:
		return g.loop(depth)
	case n < 85:
		declared := g.variable()
		text := g.action(declared + " := " + g.pipeline(2))
		g.variables = append(g.variables, declared)
		return text
	case n < 89 && len(g.variables) > 0:
		return g.action(pick(g, g.variables) + " = " + g.pipeline(2))
	case n < 93 && len(g.templates) > 0:
		argument := ""
		if g.chance(70) {
			argument = " " + g.pipeline(1)
		}
		return g.action(fmt.Sprintf("template %q%s", pick(g, g.templates), argument))
	case n < 95 && g.loops > 0:
		return g.action("if "+g.pipeline(1)) + g.action(pick(g, []string{"break", "continue"})) + g.action("end")
	case n < 97:
		return pick(g, []string{"{{/* comment */}}", "{{- /* comment */ -}}", "{{/* a\nb */ -}}", "{{- /* c */}}"})
	case n < 98:
		return g.action(fmt.Sprintf("block %q %s", pick(g, []string{"blk", "a", "other"}), g.field())) + g.inner(depth) + g.action("end")
	default:
		return g.action(g.pipeline(3))
	}
}

// inner is a block that can't see variables of the surrounding template.
func (g *generator) inner(depth int) string {
	variables, loops := g.variables, g.loops
	g.variables, g.loops = nil, 0
	text := g.block(depth - 1)
	g.variables, g.loops = variables, loops
	return text
}

func (g *generator) branch(keyword string, depth int) string {
	known := len(g.variables)
	head := g.pipeline(2)
	if g.chance(20) {
		declared := g.variable()
		head = declared + " := " + head
		g.variables = append(g.variables, declared)
	}
	text := g.action(keyword+" "+head) + g.block(depth-1)
	for g.chance(20) {
		text += g.action("else "+keyword+" "+g.pipeline(2)) + g.block(depth-1)
	}
	if g.chance(40) {
		text += g.action("else") + g.block(depth-1)
	}
	g.variables = g.variables[:known]
	return text + g.action("end")
}

func (g *generator) loop(depth int) string {
	known := len(g.variables)
	over := pick(g, []string{"(list 1 2 3)", "(dict \"b\" 1 \"a\" 2)", "3", "(list 0 1 2)", "(list)", g.field(), g.pipeline(1), "(splitList \",\" \"x,y\")"})
	if len(g.data.lists) > 0 && g.chance(40) {
		over = pick(g, g.data.lists)
	} else if len(g.data.maps) > 0 && g.chance(30) {
		over = pick(g, g.data.maps)
	}
	head := over
	switch g.random.IntN(4) {
	case 0:
		declared := g.variable()
		head = declared + " := " + over
		g.variables = append(g.variables, declared)
	case 1:
		head = "$k, $v := " + over
		g.variables = append(g.variables, "$k", "$v")
	}
	g.loops++
	text := g.action("range "+head) + g.block(depth-1)
	g.loops--
	if g.chance(30) {
		text += g.action("else") + g.block(depth-1)
	}
	g.variables = g.variables[:known]
	return text + g.action("end")
}

// template returns a case with random templates.
func (g *generator) template() testCase {
	g.data = pick(g, datasets)
	if g.chance(60) {
		g.data = g.randomData()
	}
	g.variables, g.templates, g.loops = []string{"$"}, nil, 0
	var text strings.Builder
	// A template only calls those before it, so that none calls itself.
	var several [][2]string
	for _, name := range []string{"one", "two"}[:g.random.IntN(3)] {
		if g.chance(50) {
			text.WriteString(g.action(fmt.Sprintf("define %q", name)) + g.inner(2) + g.action("end"))
		} else {
			several = append(several, [2]string{name, g.inner(2)})
		}
		g.templates = append(g.templates, name)
	}
	text.WriteString(g.block(2))
	one := testCase{Data: g.data.described}
	if several == nil {
		one.Template = text.String()
	} else {
		one.Templates = append([][2]string{{"main", text.String()}}, several...)
	}
	return one
}
