// Command kubelet-flags writes the flags that the source of Kubernetes defines for the kubelet, as a JSON array. The argument is the folder
// of the source. The kubelet itself would need far more to be built. Flags of its libraries for logs and versions are left out.
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	// The methods of a pflag.FlagSet that define a flag.
	define = regexp.MustCompile(`^(Bool|Duration|Float64|Int|Int32|Int64|Uint|String|StringArray|StringSlice|Var)(Var)?P?$`)
	// The functions by which the kubelet takes a flag over from a library.
	register = regexp.MustCompile(`^register(Deprecated)?$`)
)

func main() {
	flags, err := kubeletFlags(os.Args[1])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(flags)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func kubeletFlags(root string) ([]string, error) {
	flags := map[string]bool{}
	for _, folder := range []string{"cmd/kubelet/app/options", "pkg/kubelet/config"} {
		paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_windows.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return nil, err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				if call, ok := node.(*ast.CallExpr); ok && defines(call) {
					if name := firstText(call.Args); name != "" {
						flags[strings.ReplaceAll(name, "_", "-")] = true
					}
				}
				return true
			})
		}
	}
	if len(flags) == 0 {
		return nil, os.ErrNotExist
	}
	return slices.Sorted(maps.Keys(flags)), nil
}

func defines(call *ast.CallExpr) bool {
	switch function := call.Fun.(type) {
	case *ast.SelectorExpr:
		return define.MatchString(function.Sel.Name)
	case *ast.Ident:
		return register.MatchString(function.Name)
	}
	return false
}

func firstText(arguments []ast.Expr) string {
	for _, argument := range arguments {
		if literal, ok := argument.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, _ := strconv.Unquote(literal.Value)
			return text
		}
	}
	return ""
}
