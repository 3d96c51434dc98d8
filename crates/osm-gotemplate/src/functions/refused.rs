//! Functions of sprig that templates can't call, with the reason.

use super::Refused;

const ENVIRONMENT: &str = "reads the environment of the process that renders; pass the value as data";
const NETWORK: &str =
    "asks the network, and its result can change with each rendering; pass the address as data";
const CLOCK: &str = "depends on the time of rendering, so that each rendering differs; pass the time as data";
const RANDOM: &str =
    "returns another value with each rendering; write the value down, or create it on the machine";
const KEYS: &str =
    "creates other keys or certificates with each rendering; create them once, and keep them in a Secret";
const PASSWORDS: &str =
    "returns another hash with each rendering; hash the password once, and write the hash down";

/// Every function of sprig that is refused, in order.
pub const REFUSED: &[Refused] = &[
    refused("ago", CLOCK),
    refused("bcrypt", PASSWORDS),
    refused(
        "buildCustomCert",
        "handles private keys, which do not belong in templates; keep them in a Secret",
    ),
    refused(
        "decryptAES",
        "handles secrets, which do not belong in templates; keep them in a Secret",
    ),
    refused(
        "derivePassword",
        "derives a secret from one that the template would have to hold; keep it in a Secret",
    ),
    refused(
        "encryptAES",
        "returns another text with each rendering; encrypt once, and write the result down",
    ),
    refused("env", ENVIRONMENT),
    refused("expandenv", ENVIRONMENT),
    refused("genCA", KEYS),
    refused("genCAWithKey", KEYS),
    refused("genPrivateKey", KEYS),
    refused("genSelfSignedCert", KEYS),
    refused("genSelfSignedCertWithKey", KEYS),
    refused("genSignedCert", KEYS),
    refused("genSignedCertWithKey", KEYS),
    refused("getHostByName", NETWORK),
    refused("htpasswd", PASSWORDS),
    refused("now", CLOCK),
    refused("randAlpha", RANDOM),
    refused("randAlphaNum", RANDOM),
    refused("randAscii", RANDOM),
    refused("randBytes", RANDOM),
    refused("randInt", RANDOM),
    refused("randNumeric", RANDOM),
    refused("shuffle", RANDOM),
    refused("uuidv4", RANDOM),
];

const fn refused(name: &'static str, reason: &'static str) -> Refused {
    Refused { name, reason }
}
