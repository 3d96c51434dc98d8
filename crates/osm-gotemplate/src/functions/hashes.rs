//! Checksums.

use sha2::Sha256;
use sha2::digest::Digest;

use super::table::table;

table! {
    "sha256sum": (String) -> "string", "Returns the SHA-256 checksum of the text in hexadecimal digits.",
        r#""a""# => "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
        |call| call.made(Sha256::digest(call.text(0)).iter().map(|byte| format!("{byte:02x}")).collect::<String>());
}
