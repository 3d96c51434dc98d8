//! Checksums.

use sha1::Sha1;
use sha2::digest::Digest;
use sha2::{Sha256, Sha512};

use super::table::table;
use super::{Call, Problem};
use crate::value::Value;

table! {
    "sha1sum": (String) -> "string", "Returns the SHA-1 checksum of the text in hexadecimal digits.",
        r#""a""# => "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8", hexadecimal::<Sha1>;
    "sha256sum": (String) -> "string", "Returns the SHA-256 checksum of the text in hexadecimal digits.",
        r#""a""# => "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb", hexadecimal::<Sha256>;
    "sha512sum": (String) -> "string", "Returns the SHA-512 checksum of the text in hexadecimal digits.",
        r#""a" | trunc 16"# => "1f40fc92da241694", hexadecimal::<Sha512>;
    "adler32sum": (String) -> "string", "Returns the Adler-32 checksum of the text in decimal digits.", r#""a""# => "6422626", adler32;
}

fn hexadecimal<D: Digest>(call: &Call<'_>) -> Result<Value, Problem> {
    let digest = D::digest(call.text(0));
    call.made(
        digest
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>(),
    )
}

fn adler32(call: &Call<'_>) -> Result<Value, Problem> {
    const MODULUS: u32 = 65_521;
    let (mut sum, mut sum_of_sums) = (1, 0);
    for byte in call.text(0).bytes() {
        sum = (sum + u32::from(byte)) % MODULUS;
        sum_of_sums = (sum_of_sums + sum) % MODULUS;
    }
    call.made((sum_of_sums << 16 | sum).to_string())
}
