package main

import (
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"text/template"
)

// texts are strings that functions treat in different ways.
var texts = []string{
	"", "a", "abc", "Hello World", "foo bar baz", "  padded  ", "a,b,c", "1", "42", "-7", "3.14", "0x1f", "017", "1e3", "true", "<nil>",
	"äöü", "日本語", "a-b_c d", "camelCaseText", "snake_case_text", "HTTPServer", "v1.33.2", "1.34.0-rc.1", ">=1.33, <1.36", "~1.33.0", "^1.2",
	"1h30m", "90s", "2024-02-29", "2006-01-02", "2024-02-29T12:30:45Z", "/etc/kubernetes/kubelet.conf", "../a/./b//c", "file.tar.gz",
	"https://user:pass@example.org:8443/a%20b?x=1&y=2#frag", "a+b", "[a-z]+", "(\\w+)@(\\w+)", "$1-${2}", "user@host", "{\"a\":1,\"b\":[1,2]}",
	"[1,\"x\",null]", "a: 1\nb:\n  - x\n  - y: 2\n", "- 1\n- two\n", "x = 1\n[t]\ny = \"z\"\n", "line one\nline two\n", "tab\there", "quote\"d", "it's",
	"<b>&amp;</b>", "aGVsbG8=", "NBSWY3DP", "not base64!", "yes", "null", "~", "0", "%d", "%s items", "\\", "\r\n", "\u00a0", "a\\nb", "é", "ß", "🙂",
}

var integers = []string{"0", "1", "2", "3", "-1", "5", "7", "10", "100", "-42", "255", "0x10", "017", "0b101", "1_000", "'a'", "65"}

var floats = []string{"0.0", "1.5", "-2.25", "3.14159", "1e3", "1e21", "1e-7", "100.0", "0.1", "2.5", "1e6"}

// generator makes random templates.
type generator struct {
	random    *rand.Rand
	functions template.FuncMap
	names     []string
	data      *dataset
	variables []string
	templates []string
	loops     int
	seeds     []testCase
}

func pick[T any](g *generator, items []T) T {
	return items[g.random.IntN(len(items))]
}

// chance is true in percent of the cases.
func (g *generator) chance(percent int) bool {
	return g.random.IntN(100) < percent
}

// literal returns a constant.
func (g *generator) literal() string {
	switch g.random.IntN(12) {
	case 0, 1, 2, 3:
		return g.text()
	case 4, 5, 6:
		return pick(g, integers)
	case 7, 8:
		return pick(g, floats)
	case 9, 10:
		return pick(g, []string{"true", "false"})
	default:
		return "nil"
	}
}

func (g *generator) text() string {
	text := pick(g, texts)
	if g.chance(15) && !strings.ContainsAny(text, "`\r") {
		return "`" + text + "`"
	}
	return strconv.Quote(text)
}

// method returns a call of a method, which the value mostly has. Commands can have arguments; operands are in parentheses then.
func (g *generator) method() string {
	version := func() string { return "(semver " + strconv.Quote(pick(g, versions)) + ")" }
	nothing := []string{"", "", "", "", " 1", " nil", ".Nope"}
	other := pick(g, []string{version(), version(), version(), "nil", "\"1.2.3\"", "."})
	return version() + pick(g, []string{
		".Compare " + other, ".Equal " + other, ".LessThan " + other, ".GreaterThan " + other, ".String" + pick(g, nothing), ".Original", ".Prerelease" + pick(g, nothing), ".Metadata",
		".Major", ".Minor" + pick(g, nothing), ".Patch", ".major",
	})
}

// field returns a chain of fields, which the data mostly has, or a method call in parentheses.
func (g *generator) field() string {
	switch {
	case g.chance(4):
		return "(" + g.method() + ")"
	case g.chance(8):
		return "."
	case g.chance(10):
		return pick(g, []string{".missing", ".a.missing", ".String", ".x.y.z", ".Nope"})
	case g.chance(6):
		return "$" + pick(g, g.data.paths)
	default:
		return pick(g, g.data.paths)
	}
}

// operand returns a value that stands alone.
func (g *generator) operand(depth int) string {
	switch n := g.random.IntN(20); {
	case n < 7:
		return g.literal()
	case n < 13:
		return g.field()
	case n < 15 && len(g.variables) > 0:
		return pick(g, g.variables)
	case depth <= 0:
		return g.literal()
	case n == 19 && g.chance(40):
		return "(" + g.pipeline(depth-1) + ")" + pick(g, []string{".a", ".b", ".missing", ".a.b"})
	default:
		return "(" + g.pipeline(depth-1) + ")"
	}
}

// of returns an operand that mostly has a type.
func (g *generator) of(wanted reflect.Type, depth int) string {
	if g.chance(12) {
		return g.operand(depth)
	}
	if paths := g.data.byType[wanted.String()]; len(paths) > 0 && g.chance(35) {
		return pick(g, paths)
	}
	switch wanted.Kind() {
	case reflect.String:
		return g.text()
	case reflect.Int, reflect.Int64, reflect.Int32:
		return pick(g, integers)
	case reflect.Float64:
		return pick(g, append(integers[:3:3], floats...))
	case reflect.Bool:
		return pick(g, []string{"true", "false"})
	case reflect.Slice:
		switch wanted.Elem().Kind() {
		case reflect.String:
			return pick(g, []string{`(splitList "," "b,a,c")`, `(list "x" "y" | toStrings)`, `(list | toStrings)`})
		case reflect.Interface:
			return pick(g, []string{`(list)`, `(list 1 2 3)`, `(list "b" "a" "c")`, `(list 1 "a" nil true 1.5)`, `(list (list 1 2) (list 3))`, `(list 0 1 2 3)`})
		}
	case reflect.Map:
		return g.dictionary()
	}
	return g.operand(depth)
}

func (g *generator) dictionary() string {
	return pick(g, []string{
		`(dict)`, `(dict "a" 1)`, `(dict "a" 1 "b" "x" "c" true)`, `(dict "a" (dict "b" 2 "c" (list 1 2)))`, `(dict "b" nil "a" 1.5)`,
		`(dict "k" "v" "empty" "")`, `(dict "10" 1 "9" 2 "a10" 3 "a9" 4)`,
	})
}

// list and map arguments are interface{} in the signatures of sprig, hence this table of what functions want beyond their types.
var shapes = map[string]string{
	"first": "L", "last": "L", "rest": "L", "initial": "L", "reverse": "L", "uniq": "L", "compact": "L", "sortAlpha": "L", "toStrings": "L",
	"append": "LA", "prepend": "LA", "has": "AL", "without": "LAA", "slice": "LII", "concat": "LL", "join": "SL",
	"keys": "D", "values": "D", "get": "DK", "hasKey": "DK", "set": "DKA", "unset": "DK", "pick": "DKK", "omit": "DKK", "dict": "KAKA",
	"index": "LI", "len": "L", "printf": "FAA", "eq": "BBB", "ne": "BB", "lt": "BB", "le": "BB", "gt": "BB", "ge": "BB",
	"and": "AAA", "or": "AAA", "not": "A", "print": "AAA", "println": "AAA", "html": "SA", "js": "SA", "urlquery": "SA", "call": "AA",
	"regexMatch": "RS", "regexFind": "RS", "regexReplaceAll": "RST",
	"semver": "V", "semverCompare": "CV", "ternary": "AAO", "default": "AA", "coalesce": "AAA",
	"repeat": "IS", "indent": "IS", "nindent": "IS", "trunc": "IS", "substr": "IIS",
	"add": "III", "sub": "II", "div": "II", "mod": "II", "mul": "II", "max": "II", "min": "II", "add1": "I",

	"fromJson": "S", "toJson": "A", "toYaml": "A", "toToml": "D", "kindIs": "KA", "typeIs": "KA",
}

var verbs = []string{
	"%v", "%d", "%s", "%q", "%t", "%x", "%5d", "%-5d|", "%05d", "%-8s|", "%8s", "%08s", "%6v|", "%-6v|", "%06v", "%8q|", "%6t", "%6x", "%06x", "%%", "%d %d", "%s and %s", "%v %v %v",
}

var versions = []string{"1.2.3", "v1.33.2", "1.34.0-rc.1", "1.2", "1", "v2.0.0+build.5", "1.2.3-alpha.1", "not.a.version", "01.2.3", "0.0.0", ""}

var constraints = []string{
	">=1.2.3", "~1.33.0", "^1.2", "<1.29", "1.2.x", "*", ">=1.33, <1.36", "1.2 || >=3", "!=1.2.3", ">1.2.3-0", "=1.33.2", "1.2 - 1.5", "~>1.2", "^0.0.3", ">= 1.*", "bad",
	"<=1.34.0-rc.1", "~1", "", ">=1.30.0-0 <1.35",
}

var expressions = []string{
	"[a-z]+", "^a", "b$", "(\\w+) (\\w+)", "a|b", "[0-9]{2,3}", "(?i)HELLO", ".", "", "(", "\\s+", "(?P<n>a)b", "a*", "[^,]+", "\\bfoo\\b", "[", "x{2,1}", "(?s).+",
}

// argument returns an operand of one letter of a shape.
func (g *generator) argument(shape byte, depth int) string {
	if g.chance(12) {
		return g.operand(depth)
	}
	quoted := func(from []string) string { return strconv.Quote(pick(g, from)) }
	switch shape {
	case 'L':
		if len(g.data.lists) > 0 && g.chance(40) {
			return pick(g, g.data.lists)
		}
		return g.of(reflect.TypeFor[[]any](), depth)
	case 'D':
		if len(g.data.maps) > 0 && g.chance(40) {
			return pick(g, g.data.maps)
		}
		return g.dictionary()
	case 'S':
		return g.of(reflect.TypeFor[string](), depth)
	case 'I':
		return g.of(reflect.TypeFor[int](), depth)
	case 'N':
		return g.of(reflect.TypeFor[float64](), depth)
	case 'O':
		return g.of(reflect.TypeFor[bool](), depth)
	case 'K':
		return quoted([]string{"a", "b", "c", "k", "missing", "string", "int", "slice", "map", "float64", "[]interface {}", ""})
	case 'F':
		if g.chance(30) {
			return strconv.Quote(pick(g, verbs) + pick(g, []string{" ", "-", "", "x"}) + pick(g, verbs))
		}
		return quoted(verbs)
	case 'V':
		return quoted(versions)
	case 'C':
		return quoted(constraints)
	case 'R':
		return quoted(expressions)
	case 'T':
		return quoted([]string{"x", "$1", "${1}y", "$0$0", "$n", "$$", "${2}-$1", "2024-02-29", ""})
	case 'B':
		return pick(g, []string{g.literal(), g.field(), pick(g, integers), g.text(), pick(g, floats), g.operand(depth)})
	}
	return g.operand(depth)
}

// call returns a call of a function, mostly one that Go accepts.
func (g *generator) call(name string, depth int) string {
	if name == "keys" && g.chance(95) {
		return "keys " + g.dictionary() + " | sortAlpha"
	}
	parts := []string{name}
	if shape, ok := shapes[name]; ok {
		for at := range len(shape) {
			if at > 1 && g.chance(25) && strings.Contains("ABI", shape[at:at+1]) {
				break
			}
			parts = append(parts, g.argument(shape[at], depth))
		}
	} else if function, ok := g.functions[name]; ok {
		signature := reflect.TypeOf(function)
		for at := range signature.NumIn() {
			if signature.IsVariadic() && at == signature.NumIn()-1 {
				for range g.random.IntN(3) {
					parts = append(parts, g.of(signature.In(at).Elem(), depth))
				}
				break
			}
			parts = append(parts, g.of(signature.In(at), depth))
		}
	} else {
		parts = append(parts, g.operand(depth), g.operand(depth))
	}
	switch {
	case len(parts) > 1 && g.chance(3):
		parts = parts[:len(parts)-1]
	case g.chance(3):
		parts = append(parts, g.operand(depth))
	}
	return strings.Join(parts, " ")
}

// common functions are called more often than the others.
var common = []string{
	"eq", "ne", "and", "or", "not", "lt", "printf", "print", "index", "len", "semverCompare", "default", "quote", "indent", "join", "ternary", "dict", "list",
}

func (g *generator) function() string {
	if g.chance(35) {
		return pick(g, common)
	}
	return pick(g, g.names)
}

// pipeline returns one to three commands.
func (g *generator) pipeline(depth int) string {
	var text string
	switch {
	case g.chance(3):
		text = g.method()
	case depth <= 0 || g.chance(25):
		text = g.operand(0)
	default:
		text = g.call(g.function(), depth-1)
	}
	for g.chance(25) {
		name := g.function()
		call := g.call(name, depth-1)
		// The value of the pipeline is the last argument.
		if at := strings.LastIndexByte(call, ' '); at > 0 && !strings.ContainsAny(call[at:], "\")`") {
			call = call[:at]
		} else if g.chance(70) {
			call = pick(g, []string{"quote", "upper", "toString", "len", "print", "trim", "default \"d\"", "indent 2", "printf \"%v\"", "kindOf", "typeOf", "b64enc", "first", "join \",\"", "not", "squote", "int", "nindent 4"})
		}
		text += pick(g, []string{" | ", " | ", "|", " |", "| "}) + call
	}
	return text
}

func (g *generator) variable() string {
	name := "$" + pick(g, []string{"a", "b", "x", "item", "i"})
	return name
}
