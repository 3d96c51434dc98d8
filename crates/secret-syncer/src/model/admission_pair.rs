//! The key pair of the admission webhooks, as a Secret holds it.
//!
//! Each serving certificate has a CA of its own, whose key is thrown away once the certificate is signed. So no key that could sign others is
//! stored anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose,
};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;

/// Keys of the Secret: the pair in use, with the names that Kubernetes gives them.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// The pair that follows.
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
/// The CAs that API servers have to trust.
const TRUSTED: &str = "ca.crt";
/// Since when the pair in use is in use, RFC 3339.
const SINCE: &str = "since";

/// How long a pair is valid.
pub const LIFETIME: Duration = Duration::from_hours(90 * 24);

/// Clocks of API servers may be behind by this much.
const CLOCK_SKEW: Duration = Duration::from_hours(1);

/// CAs that are kept when a pair is served at once. A Secret that breaks again and again does not grow.
const MAX_TRUSTED: usize = 8;

const END_OF_CERTIFICATE: &str = "-----END CERTIFICATE-----";

/// A serving certificate with its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    certificate: String,
    key: String,
    /// The name of its CA, DER.
    issuer: Vec<u8>,
    /// The names and addresses that it is valid for.
    pub hosts: BTreeSet<String>,
    pub made: Timestamp,
    pub expires: Timestamp,
}

/// The content of the Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// The pair in use; `None`: there is none that can be used.
    pub serving: Option<Pair>,
    /// The pair that follows.
    pub next: Option<Pair>,
    /// Since when the pair in use is in use; `None`: it is not known.
    pub since: Option<Timestamp>,
    /// Certificates of the CAs to trust, PEM, by their names.
    trusted: BTreeMap<Vec<u8>, String>,
}

impl Stored {
    pub fn read(data: &BTreeMap<String, ByteString>) -> Self {
        let text = |key: &str| {
            let bytes = data.get(key)?;
            std::str::from_utf8(&bytes.0).ok()
        };
        let pair = |certificate, key| Pair::read(text(certificate)?, text(key)?);
        let trusted = text(TRUSTED).unwrap_or_default();
        let trusted = trusted.split_inclusive(END_OF_CERTIFICATE).filter_map(|pem| {
            let pem = format!("{}\n", pem.trim());
            Some((subject(&pem)?, pem))
        });
        Self {
            serving: pair(CERTIFICATE, KEY),
            next: pair(NEXT_CERTIFICATE, NEXT_KEY),
            since: text(SINCE).and_then(|since| since.parse().ok()),
            trusted: trusted.collect(),
        }
    }

    pub fn data(&self) -> BTreeMap<String, ByteString> {
        let mut texts = vec![(TRUSTED, self.bundle())];
        texts.extend(self.since.map(|since| (SINCE, since.to_string())));
        let mut add = |pair: &Option<Pair>, certificate, key| {
            if let Some(pair) = pair {
                texts.push((certificate, pair.certificate.clone()));
                texts.push((key, pair.key.clone()));
            }
        };
        add(&self.serving, CERTIFICATE, KEY);
        add(&self.next, NEXT_CERTIFICATE, NEXT_KEY);
        let entry = |(key, text): (&str, String)| (key.to_owned(), ByteString(text.into_bytes()));
        texts.into_iter().map(entry).collect()
    }

    /// All CAs to trust, PEM.
    pub fn bundle(&self) -> String {
        self.trusted.values().cloned().collect()
    }

    /// Whether a CA that is trusted has signed the pair.
    pub fn trusts(&self, pair: &Pair) -> bool {
        let ca = self.trusted.get(&pair.issuer);
        ca.is_some_and(|ca| is_signed_by(&pair.certificate, ca).unwrap_or_default())
    }

    /// Whether CAs are trusted that neither pair needs.
    pub fn trusts_others(&self) -> bool {
        let needed = [&self.serving, &self.next].into_iter().flatten();
        self.trusted.len() > needed.filter(|pair| self.trusts(pair)).count()
    }

    /// Serves a new pair at once. A pod may still serve an older one, or one of another version of this service. So the CAs of those stay
    /// trusted, unless they have become many.
    pub fn start(&mut self, made: Made) {
        if self.trusted.len() >= MAX_TRUSTED {
            self.trusted.clear();
        }
        self.trusted.insert(made.pair.issuer.clone(), made.ca);
        self.next = None;
        self.since = Some(made.pair.made);
        self.serving = Some(made.pair);
    }

    /// Trusts a new pair before it is served.
    pub fn prepare(&mut self, made: Made) {
        self.next = None;
        self.forget_others();
        self.trusted.insert(made.pair.issuer.clone(), made.ca);
        self.next = Some(made.pair);
    }

    /// Serves the pair that follows, while both are trusted.
    pub fn promote(&mut self, now: Timestamp) {
        if let Some(next) = self.next.take() {
            self.serving = Some(next);
            self.since = Some(now);
        }
    }

    /// Trusts only the pair in use.
    pub fn forget_others(&mut self) {
        let serving = self.serving.as_ref().map(|pair| pair.issuer.clone());
        self.trusted.retain(|name, _| Some(name) == serving.as_ref());
    }
}

impl Pair {
    /// `None`: it can't be used.
    fn read(certificate: &str, key: &str) -> Option<Self> {
        let key_pair = KeyPair::from_pem(key).ok()?;
        let (_, pem) = parse_x509_pem(certificate.as_bytes()).ok()?;
        let x509 = pem.parse_x509().ok()?;
        if x509.public_key().subject_public_key.as_ref() != key_pair.public_key_raw() {
            return None;
        }
        let time = |time: i64| Timestamp::from_second(time).ok();
        let validity = x509.validity();
        let names = x509.subject_alternative_name().ok().flatten()?;
        let hosts = names.value.general_names.iter().filter_map(host);
        Some(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            issuer: x509.issuer().as_raw().to_vec(),
            hosts: hosts.collect(),
            made: time(validity.not_before.timestamp())?
                .saturating_add(CLOCK_SKEW)
                .ok()?,
            expires: time(validity.not_after.timestamp())?,
        })
    }
}

fn host(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let address = <[u8; 4]>::try_from(*bytes)
                .map(IpAddr::from)
                .or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

/// The name of a CA, DER.
fn subject(pem: &str) -> Option<Vec<u8>> {
    let (_, pem) = parse_x509_pem(pem.as_bytes()).ok()?;
    let x509 = pem.parse_x509().ok()?;
    Some(x509.subject().as_raw().to_vec())
}

/// `None`: one of these certificates can't be read.
fn is_signed_by(certificate: &str, ca: &str) -> Option<bool> {
    let (_, certificate) = parse_x509_pem(certificate.as_bytes()).ok()?;
    let (_, ca) = parse_x509_pem(ca.as_bytes()).ok()?;
    let (certificate, ca) = (certificate.parse_x509().ok()?, ca.parse_x509().ok()?);
    Some(certificate.verify_signature(Some(ca.public_key())).is_ok())
}

/// A new pair with the certificate of its CA, PEM.
pub struct Made {
    pair: Pair,
    ca: String,
}

impl Made {
    /// `number` tells this CA from all others.
    ///
    /// # Errors
    /// A host that no certificate can name.
    pub fn new(hosts: &BTreeSet<String>, now: Timestamp, number: u128) -> Result<Self, rcgen::Error> {
        let mut ca = params(
            &[],
            now,
            &format!("Operating System Manager admission {number:032x}"),
        )?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
        let hosts: Vec<String> = hosts.iter().cloned().collect();
        let mut params = params(&hosts, now, "Operating System Manager admission")?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &ca)?.pem();
        let pair = Pair::read(&certificate, &key.serialize_pem());
        Ok(Self {
            pair: pair.ok_or(rcgen::Error::CouldNotParseCertificate)?,
            ca: ca.pem(),
        })
    }
}

fn params(hosts: &[String], now: Timestamp, name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let seconds = |time: Timestamp| Duration::from_secs(u64::try_from(time.as_second()).unwrap_or_default());
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + seconds(now).saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + (seconds(now) + LIFETIME);
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn start(made: Made) -> Stored {
        let mut stored = Stored::default();
        stored.start(made);
        stored
    }

    fn hosts() -> BTreeSet<String> {
        BTreeSet::from(["a.ns.svc".to_owned(), "10.0.0.1".to_owned(), "fd00::1".to_owned()])
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let mut stored = start(Made::new(&hosts(), now(), 1).unwrap());
        let again = Stored::read(&stored.data());
        assert!(again == stored);
        let serving = again.serving.unwrap();
        assert_eq!((serving.hosts, serving.made), (hosts(), now()));
        assert_eq!(serving.expires, now() + LIFETIME);

        stored.prepare(Made::new(&hosts(), now(), 2).unwrap());
        assert!(Stored::read(&stored.data()) == stored);
        assert_eq!(stored.bundle().matches(END_OF_CERTIFICATE).count(), 2);
        assert!(!stored.trusts_others());
        stored.promote(now());
        assert!(stored.trusts_others() && stored.next.is_none());
        stored.forget_others();
        assert_eq!(stored.bundle().matches(END_OF_CERTIFICATE).count(), 1);
        assert!(stored.trusts(stored.serving.as_ref().unwrap()));
    }

    #[test]
    fn a_pair_that_is_lost_stays_trusted_for_pods_that_serve_it() {
        let mut stored = start(Made::new(&hosts(), now(), 1).unwrap());
        let lost = stored.serving.clone().unwrap();
        for number in 2..100 {
            let mut data = stored.data();
            data.remove(KEY);
            stored = Stored::read(&data);
            stored.start(Made::new(&hosts(), now(), number).unwrap());
            assert!(stored.trusts(stored.serving.as_ref().unwrap()));
            assert_eq!(stored.trusts(&lost), number <= 8);
            assert!(stored.trusted.len() <= MAX_TRUSTED);
        }
    }

    #[test]
    fn an_empty_or_altered_secret_has_no_pair() {
        assert!(Stored::read(&BTreeMap::new()) == Stored::default());
        let stored = start(Made::new(&hosts(), now(), 1).unwrap());
        for key in [CERTIFICATE, KEY] {
            for text in [
                "",
                "x",
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            ] {
                let mut data = stored.data();
                data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
                assert!(Stored::read(&data).serving.is_none(), "{key} {text}");
            }
        }
    }

    #[test]
    fn a_key_of_another_pair_is_none_and_a_ca_of_another_pair_is_not_trusted() {
        let data = |number| start(Made::new(&hosts(), now(), number).unwrap()).data();
        let with = |key: &str, number| {
            let mut altered = data(1);
            altered.insert(key.to_owned(), data(number)[key].clone());
            Stored::read(&altered)
        };
        for key in [CERTIFICATE, KEY] {
            assert!(with(key, 2).serving.is_none(), "{key}");
        }
        // The name of the CA is the same, but not its key.
        let stored = with(TRUSTED, 1);
        assert!(!stored.trusts(&stored.serving.clone().unwrap()));
    }
}
