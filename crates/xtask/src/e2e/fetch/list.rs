//! Lists of checksums, as distributors publish them.

use anyhow::{Context, Result, bail, ensure};
use osm_lab::machines::Checksum;

/// A file of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Its name, without a folder.
    pub file: String,
    /// Its strongest checksum.
    pub checksum: Checksum,
}

/// The file whose name is `pattern`, in which one `*` is for any text.
///
/// # Errors
/// When the list has no such file, or several, or two checksums of the same kind for it.
pub fn find(list: &str, pattern: &str) -> Result<Listed> {
    let matching = || {
        list.lines()
            .filter_map(read)
            .filter(|listed| matches(pattern, &listed.file))
    };
    let mut names: Vec<String> = matching().map(|listed| listed.file).collect();
    names.sort();
    names.dedup();
    let file = match names.as_slice() {
        [file] => file,
        [] => bail!("it has no SHA-256 and no SHA-512 of {pattern}"),
        several => bail!(
            "it has several files {pattern}: {}; make the URL in e2e/images.toml more precise",
            several.join(", ")
        ),
    };
    let strongest = matching()
        .map(|listed| listed.checksum)
        .max_by_key(|checksum| matches!(checksum, Checksum::Sha512(_)))
        .with_context(|| format!("a checksum of {file}"))?;
    let same_kind = |other: &Checksum| std::mem::discriminant(other) == std::mem::discriminant(&strongest);
    ensure!(
        matching()
            .map(|listed| listed.checksum)
            .filter(same_kind)
            .all(|other| other == strongest),
        "it has two different checksums of {file}"
    );
    Ok(Listed {
        file: file.clone(),
        checksum: strongest,
    })
}

/// A line `SHA256 (FILE) = DIGITS`, `DIGITS  FILE` or `DIGITS *FILE`. None for comments, and for kinds of checksums that prove nothing.
fn read(line: &str) -> Option<Listed> {
    let line = line.trim_end();
    let (digits, file) = match line.split_once(" (") {
        Some(("SHA256" | "SHA512", rest)) => {
            let (file, digits) = rest.rsplit_once(") = ")?;
            (digits, file)
        }
        Some(_) => return None,
        None => {
            let (digits, file) = line.split_once(' ')?;
            (digits, file.strip_prefix([' ', '*'])?)
        }
    };
    let digits = digits.to_lowercase();
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let checksum = match digits.len() {
        64 => Checksum::Sha256(digits),
        128 => Checksum::Sha512(digits),
        _ => return None,
    };
    let file = file.strip_prefix("./").unwrap_or(file).to_owned();
    Some(Listed { file, checksum })
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((start, end)) => name
            .strip_prefix(start)
            .is_some_and(|rest| rest.len() >= end.len() && rest.ends_with(end) && !rest.contains('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 digits.
    fn sha256(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    #[test]
    fn lists_of_all_distributors_are_read() {
        let (a, b) = (sha256('a'), sha256('b'));
        let ubuntu = format!(
            "{b} *ubuntu-24.04-server-cloudimg-amd64-root.tar.xz\n{a} *ubuntu-24.04-server-cloudimg-amd64.img\n\
             {b} *ubuntu-24.04-server-cloudimg-arm64.img\n"
        );
        let rocky = format!(
            "# Rocky-9-GenericCloud-Base.latest.x86_64.qcow2: 645988352 bytes\n\
             SHA256 (Rocky-9-GenericCloud-Base-9.6.x86_64.qcow2) = {b}\n\
             SHA256 (Rocky-9-GenericCloud-Base.latest.x86_64.qcow2) = {a}\n"
        );
        let amazon = format!("{a}  amzn2-kvm-2.0.20251110.1-x86_64.xfs.gpt.qcow2\n");
        for (list, pattern, file) in [
            (
                &ubuntu,
                "ubuntu-24.04-server-cloudimg-amd64.img",
                "ubuntu-24.04-server-cloudimg-amd64.img",
            ),
            (
                &rocky,
                "Rocky-9-GenericCloud-Base.latest.x86_64.qcow2",
                "Rocky-9-GenericCloud-Base.latest.x86_64.qcow2",
            ),
            (
                &amazon,
                "amzn2-kvm-*-x86_64.xfs.gpt.qcow2",
                "amzn2-kvm-2.0.20251110.1-x86_64.xfs.gpt.qcow2",
            ),
        ] {
            let expected = Listed {
                file: file.to_owned(),
                checksum: Checksum::Sha256(a.clone()),
            };
            assert_eq!(find(list, pattern).unwrap(), expected);
        }
    }

    #[test]
    fn only_the_strongest_checksum_of_flatcar_counts() {
        let name = "flatcar_production_qemu_image.img";
        let (md5, sha1, sha512) = ("1".repeat(32), "2".repeat(40), "3".repeat(128));
        let weak = format!("# MD5 HASH\n{md5}  {name}\n# SHA1 HASH\n{sha1}  {name}\n");
        let digests = format!("{weak}# SHA512 HASH\n{sha512}  {name}\n");
        let expected = Checksum::Sha512(sha512);
        assert_eq!(find(&digests, name).unwrap().checksum, expected);
        let both = format!("{digests}{}  {name}\n", sha256('a'));
        assert_eq!(find(&both, name).unwrap().checksum, expected);
        let error = find(&weak, name).unwrap_err().to_string();
        assert!(error.contains("no SHA-256 and no SHA-512"), "{error}");
    }

    #[test]
    fn what_is_ambiguous_is_refused() {
        let (a, b) = (sha256('a'), sha256('b'));
        let error = find(&format!("{a}  x-1.img\n{b}  x-2.img\n"), "x-*.img")
            .unwrap_err()
            .to_string();
        assert!(error.contains("x-1.img, x-2.img"), "{error}");
        let error = find(&format!("{a}  x.img\n{b}  x.img\n"), "x.img")
            .unwrap_err()
            .to_string();
        assert!(error.contains("two different checksums"), "{error}");
        assert_eq!(
            find(&format!("{a}  x.img\n{a}  ./x.img\n"), "x.img")
                .unwrap()
                .file,
            "x.img"
        );
        assert!(find(&format!("{a}  x-1/../y.img\n"), "x-*.img").is_err());
        // Text before and after the `*` must not overlap.
        assert!(find(&format!("{a}  x.img\n"), "x.im*img").is_err());
        assert!(find(&format!("SHA256 (x.img) = {}\n", &a[1..]), "x.img").is_err());
    }
}
