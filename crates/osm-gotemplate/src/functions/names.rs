//! A test that every function that profiles for the upstream OSM can name is here.

use std::collections::BTreeSet;

use super::{REFUSED, all};

/// Functions of sprig v3.3.0 with those that the upstream OSM adds.
const NAMES: &str = "
    abbrev abbrevboth add add1 add1f addf adler32sum ago all any append atoi b32dec b32enc b64dec b64enc base bcrypt biggest
    buildCustomCert camelcase cat ceil chunk clean coalesce compact concat contains date dateInZone dateModify date_in_zone
    date_modify decryptAES deepCopy deepEqual default derivePassword dict dig dir div divf duration durationRound empty encryptAES
    env expandenv ext fail first float64 floor fromJson fromJsonArray fromToml fromYaml fromYamlArray genCA genCAWithKey
    genPrivateKey genSelfSignedCert genSelfSignedCertWithKey genSignedCert genSignedCertWithKey get getHostByName has hasKey
    hasPrefix hasSuffix hello htmlDate htmlDateInZone htpasswd indent initial initials int int64 isAbs join kebabcase keys kindIs
    kindOf last list lower max maxf merge mergeOverwrite min minf mod mul mulf mustAppend mustChunk mustCompact mustDateModify
    mustDeepCopy mustFirst mustFromJson mustHas mustInitial mustLast mustMerge mustMergeOverwrite mustPrepend mustPush
    mustRegexFind mustRegexFindAll mustRegexMatch mustRegexReplaceAll mustRegexReplaceAllLiteral mustRegexSplit mustRest
    mustReverse mustSlice mustToDate mustToJson mustToPrettyJson mustToRawJson mustUniq mustWithout must_date_modify nindent
    nospace now omit osBase osClean osDir osExt osIsAbs pick pluck plural prepend push quote randAlpha randAlphaNum randAscii
    randBytes randInt randNumeric regexFind regexFindAll regexMatch regexQuoteMeta regexReplaceAll regexReplaceAllLiteral
    regexSplit repeat replace rest reverse round semver semverCompare seq set sha1sum sha256sum sha512sum shuffle slice snakecase
    sortAlpha split splitList splitn squote sub subf substr swapcase ternary title toDate toDecimal toJson toPrettyJson toRawJson
    toString toStrings toToml toYaml trim trimAll trimPrefix trimSuffix trimall trunc tuple typeIs typeIsLike typeOf uniq
    unixEpoch unset until untilStep untitle upper urlJoin urlParse uuidv4 values without wrap wrapWith
";

#[test]
fn every_name_is_a_function_or_is_refused() {
    let names: BTreeSet<&str> = NAMES.split_whitespace().collect();
    assert_eq!(names.len(), 217);
    let functions: Vec<&str> = all().map(|function| function.name).collect();
    let refused: Vec<&str> = REFUSED
        .iter()
        .flat_map(|refused| refused.names.iter().copied())
        .collect();
    let known: BTreeSet<&str> = functions.iter().chain(&refused).copied().collect();
    assert_eq!(
        known.len(),
        functions.len() + refused.len(),
        "a name has two rows"
    );
    let missing: Vec<&&str> = names.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
