//! Functions of sprig, and of the upstream OSM, that templates can't call, with the reason.

use super::Refused;

/// A row: names, and the reason.
macro_rules! refused {
    ($($($name:literal)+ => $reason:literal;)*) => {
        &[$(Refused { names: &[$($name),+], reason: $reason }),*]
    };
}

/// Every function that is refused: first those whose results differ with each rendering or that handle
/// secrets, then those that no known profile calls.
pub const REFUSED: &[Refused] = refused! {
    "env" "expandenv" => "reads the environment of the process that renders; pass the value as data";
    "getHostByName" => "asks the network, and its result can change with each rendering; pass the address as data";
    "ago" "now" => "depends on the time of rendering, so that each rendering differs; pass the time as data";
    "randAlpha" "randAlphaNum" "randAscii" "randBytes" "randInt" "randNumeric" "shuffle" "uuidv4"
        => "returns another value with each rendering; write the value down, or create it on the machine";
    "genCA" "genCAWithKey" "genPrivateKey" "genSelfSignedCert" "genSelfSignedCertWithKey" "genSignedCert" "genSignedCertWithKey"
        => "creates other keys or certificates with each rendering; create them once, and keep them in a Secret";
    "bcrypt" "htpasswd" => "returns another hash with each rendering; hash the password once, and write the hash down";
    "buildCustomCert" "decryptAES" "derivePassword" => "handles secrets, which do not belong in templates; keep them in a Secret";
    "encryptAES" => "returns another text with each rendering; encrypt once, and write the result down";
    "date" "dateInZone" "date_in_zone" "dateModify" "date_modify" "mustDateModify" "must_date_modify" "htmlDate" "htmlDateInZone"
    "toDate" "mustToDate" "unixEpoch" "duration" "durationRound"
        => "is not supported; write the date or duration into the profile";
    "urlJoin" "urlParse"
        => "is not supported; take the URL apart with splitList and regexFind, or put it together with print";
    "base" "dir" "ext" "clean" "isAbs" "osBase" "osDir" "osExt" "osClean" "osIsAbs"
        => "is not supported; use splitList, last and hasPrefix, or write the path into the profile";
    "sha1sum" "sha512sum" "adler32sum" => "is not supported; use sha256sum";
    "b32enc" "b32dec" => "is not supported; use b64enc or b64dec";
    "addf" "add1f" "subf" "mulf" "divf" "maxf" "minf" "ceil" "floor" "round"
        => "is not supported; calculate with integers by add, sub, mul, div, max and min";
    "biggest" => "is not supported; use max";
    "toDecimal" => "is not supported; write the number in decimal notation";
    "until" "untilStep" "seq" => "is not supported; use range with a number, or list the numbers";
    "mustRegexMatch" => "is not supported; use regexMatch";
    "mustRegexFind" "regexFindAll" "mustRegexFindAll" => "is not supported; use regexFind";
    "mustRegexReplaceAll" "regexReplaceAllLiteral" "mustRegexReplaceAllLiteral"
        => "is not supported; use regexReplaceAll, in whose replacement `$$` is a dollar sign";
    "regexSplit" "mustRegexSplit" "split" "splitn" => "is not supported; use splitList";
    "regexQuoteMeta" => "is not supported; escape the text in the expression with backslashes";
    "title" "untitle" "swapcase" "snakecase" "camelcase" "kebabcase" "initials" "nospace" "plural" "hello"
        => "is not supported; write the text as it has to be, or use upper, lower and replace";
    "abbrev" "abbrevboth" "wrap" "wrapWith" => "is not supported; use trunc, or write the text with its line breaks";
    "trimall" => "is not supported; use trimAll";
    "toPrettyJson" "toRawJson" "mustToJson" "mustToPrettyJson" "mustToRawJson" => "is not supported; use toJson";
    "mustFromJson" "fromJsonArray" => "is not supported; use fromJson, which reads an object";
    "fromYamlArray" => "is not supported; use fromYaml, which reads a map";
    "fromToml" => "is not supported; use fromYaml or fromJson";
    "tuple" => "is not supported; use list";
    "push" "mustAppend" "mustPush" => "is not supported; use append";
    "mustPrepend" => "is not supported; use prepend";
    "mustFirst" => "is not supported; use first";
    "mustLast" => "is not supported; use last";
    "mustRest" => "is not supported; use rest";
    "mustInitial" => "is not supported; use initial";
    "mustReverse" => "is not supported; use reverse";
    "mustCompact" => "is not supported; use compact";
    "mustUniq" => "is not supported; use uniq";
    "mustWithout" => "is not supported; use without";
    "mustHas" => "is not supported; use has";
    "mustSlice" => "is not supported; use slice";
    "chunk" "mustChunk" => "is not supported; use slice, or write the lists";
    "pluck" "dig" => "is not supported; use get or index";
    "merge" "mergeOverwrite" "mustMerge" "mustMergeOverwrite" => "is not supported; use set for each key";
    "deepCopy" "mustDeepCopy" => "is not supported; use dict with the entries";
    "typeIsLike" => "is not supported; use typeIs";
};
