package main

import (
	"slices"
	"text/template"
)

// refused are functions that read what is not data, or whose result is not the same each time. No case calls them.
var refused = []string{
	"env", "expandenv", "getHostByName", "now", "ago", "randAlpha", "randAlphaNum", "randAscii", "randNumeric", "randBytes", "randInt",
	"shuffle", "uuidv4", "bcrypt", "htpasswd", "derivePassword", "genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert",
	"genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey", "buildCustomCert", "encryptAES", "decryptAES",
}

// builtins are Go's own functions, apart from "slice", which sprig replaces.
var builtins = []string{
	"and", "or", "not", "len", "index", "print", "printf", "println", "html", "js", "urlquery", "call", "eq", "ne", "lt", "le", "gt", "ge",
}

// callable returns the names of the functions that cases call.
func callable(all template.FuncMap) []string {
	names := slices.DeleteFunc(sortedKeys(all), func(name string) bool { return slices.Contains(refused, name) || slices.Contains(builtins, name) })
	return append(names, builtins...)
}
