package main

import (
	"slices"
	"text/template"
)

// refused are functions that read what is not data, whose result is not the same each time, or that are not supported. No case calls them.
var refused = []string{
	"env", "expandenv", "getHostByName", "now", "ago", "randAlpha", "randAlphaNum", "randAscii", "randNumeric", "randBytes", "randInt",
	"shuffle", "uuidv4", "bcrypt", "htpasswd", "derivePassword", "genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert",
	"genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey", "buildCustomCert", "encryptAES", "decryptAES",
	"date", "dateInZone", "date_in_zone", "dateModify", "date_modify", "mustDateModify", "must_date_modify", "htmlDate", "htmlDateInZone", "toDate",
	"mustToDate", "unixEpoch", "duration", "durationRound", "urlJoin", "urlParse", "base", "dir", "ext", "clean", "isAbs", "osBase", "osDir", "osExt",
	"osClean", "osIsAbs", "sha1sum", "sha512sum", "adler32sum", "b32enc", "b32dec", "addf", "add1f", "subf", "mulf", "divf", "maxf", "minf", "ceil",
	"floor", "round", "toDecimal", "mustRegexMatch", "mustRegexFind", "regexFindAll", "mustRegexFindAll", "mustRegexReplaceAll",
	"regexReplaceAllLiteral", "mustRegexReplaceAllLiteral", "regexSplit", "mustRegexSplit", "regexQuoteMeta", "title", "untitle", "swapcase",
	"snakecase", "camelcase", "kebabcase", "initials", "nospace", "plural", "hello", "abbrev", "abbrevboth", "wrap", "wrapWith", "toPrettyJson",
	"toRawJson", "mustToJson", "mustToPrettyJson", "mustToRawJson", "mustFromJson", "fromJsonArray", "fromYamlArray", "fromToml",
	"biggest", "until", "untilStep", "seq", "split", "splitn", "trimall", "tuple", "push", "mustAppend", "mustPush", "mustPrepend",
	"mustFirst", "mustLast", "mustRest", "mustInitial", "mustReverse", "mustCompact", "mustUniq", "mustWithout", "mustHas", "mustSlice",
	"chunk", "mustChunk", "pluck", "dig", "merge", "mergeOverwrite", "mustMerge", "mustMergeOverwrite", "deepCopy", "mustDeepCopy",
	"typeIsLike",
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
