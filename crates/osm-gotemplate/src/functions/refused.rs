//! Functions of sprig, and of the Go implementation, that templates can't call, with the reason.

use super::Refused;

/// Every function that is refused: first those whose results differ with each rendering or that handle secrets, then those that no known
/// profile calls.
pub const REFUSED: &[Refused] = &[
    Refused {
        names: &["env", "expandenv"],
        reason: "reads the environment of the process that renders; pass the value as data",
    },
    Refused {
        names: &["getHostByName"],
        reason: "asks the network, and its result can change with each rendering; pass the address as data",
    },
    Refused {
        names: &["ago", "now"],
        reason: "depends on the time of rendering, so that each rendering differs; pass the time as data",
    },
    Refused {
        names: &[
            "randAlpha",
            "randAlphaNum",
            "randAscii",
            "randBytes",
            "randInt",
            "randNumeric",
            "shuffle",
            "uuidv4",
        ],
        reason: "returns another value with each rendering; write the value down, or create it on the machine",
    },
    Refused {
        names: &[
            "genCA",
            "genCAWithKey",
            "genPrivateKey",
            "genSelfSignedCert",
            "genSelfSignedCertWithKey",
            "genSignedCert",
            "genSignedCertWithKey",
        ],
        reason: "creates other keys or certificates with each rendering; create them once, and keep them in a Secret",
    },
    Refused {
        names: &["bcrypt", "htpasswd"],
        reason: "returns another hash with each rendering; hash the password once, and write the hash down",
    },
    Refused {
        names: &["buildCustomCert", "decryptAES", "derivePassword"],
        reason: "handles secrets, which do not belong in templates; keep them in a Secret",
    },
    Refused {
        names: &["encryptAES"],
        reason: "returns another text with each rendering; encrypt once, and write the result down",
    },
    Refused {
        names: &[
            "date",
            "dateInZone",
            "date_in_zone",
            "dateModify",
            "date_modify",
            "mustDateModify",
            "must_date_modify",
            "htmlDate",
            "htmlDateInZone",
            "toDate",
            "mustToDate",
            "unixEpoch",
            "duration",
            "durationRound",
        ],
        reason: "is not supported; write the date or duration into the profile",
    },
    Refused {
        names: &["urlJoin", "urlParse"],
        reason: "is not supported; take the URL apart with splitList and regexFind, or put it together with print",
    },
    Refused {
        names: &[
            "base", "dir", "ext", "clean", "isAbs", "osBase", "osDir", "osExt", "osClean", "osIsAbs",
        ],
        reason: "is not supported; use splitList, last and hasPrefix, or write the path into the profile",
    },
    Refused {
        names: &["sha1sum", "sha512sum", "adler32sum"],
        reason: "is not supported; use sha256sum",
    },
    Refused {
        names: &["b32enc", "b32dec"],
        reason: "is not supported; use b64enc or b64dec",
    },
    Refused {
        names: &[
            "addf", "add1f", "subf", "mulf", "divf", "maxf", "minf", "ceil", "floor", "round",
        ],
        reason: "is not supported; calculate with integers by add, sub, mul, div, max and min",
    },
    Refused {
        names: &["toDecimal"],
        reason: "is not supported; write the number in decimal notation",
    },
    Refused {
        names: &["mustRegexMatch"],
        reason: "is not supported; use regexMatch",
    },
    Refused {
        names: &["mustRegexFind", "regexFindAll", "mustRegexFindAll"],
        reason: "is not supported; use regexFind",
    },
    Refused {
        names: &[
            "mustRegexReplaceAll",
            "regexReplaceAllLiteral",
            "mustRegexReplaceAllLiteral",
        ],
        reason: "is not supported; use regexReplaceAll, in whose replacement `$$` is a dollar sign",
    },
    Refused {
        names: &["regexSplit", "mustRegexSplit"],
        reason: "is not supported; use splitList",
    },
    Refused {
        names: &["regexQuoteMeta"],
        reason: "is not supported; escape the text in the expression with backslashes",
    },
    Refused {
        names: &[
            "title",
            "untitle",
            "swapcase",
            "snakecase",
            "camelcase",
            "kebabcase",
            "initials",
            "nospace",
            "plural",
            "hello",
        ],
        reason: "is not supported; write the text as it has to be, or use upper, lower and replace",
    },
    Refused {
        names: &["abbrev", "abbrevboth", "wrap", "wrapWith"],
        reason: "is not supported; use trunc, or write the text with its line breaks",
    },
    Refused {
        names: &[
            "toPrettyJson",
            "toRawJson",
            "mustToJson",
            "mustToPrettyJson",
            "mustToRawJson",
        ],
        reason: "is not supported; use toJson",
    },
    Refused {
        names: &["mustFromJson", "fromJsonArray"],
        reason: "is not supported; use fromJson, which reads an object",
    },
    Refused {
        names: &["fromYamlArray"],
        reason: "is not supported; use fromYaml, which reads a map",
    },
    Refused {
        names: &["fromToml"],
        reason: "is not supported; use fromYaml or fromJson",
    },
];
