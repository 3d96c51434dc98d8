//! The findings of judges, and the memory that keeps a process from judging a text twice.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// One thing that is wrong with a document.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Complaint {
    /// The name of the document that the caller gave; for a file within user data `<document>: <path>`.
    pub document: String,
    /// Where in it: a line, a key; empty if it is about the whole.
    pub place: String,
    /// What is wrong, in the judge's words.
    pub message: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => write!(f, "{}: {}", self.document, self.message),
            place => write!(f, "{}: {place}: {}", self.document, self.message),
        }
    }
}

/// Everything that is wrong with the documents judged, never empty; prints as one line for each complaint.
#[derive(Clone, PartialEq, Eq)]
pub struct Complaints(BTreeSet<Complaint>);

impl Complaints {
    /// All complaints, sorted by document and place.
    pub fn iter(&self) -> impl Iterator<Item = &Complaint> {
        self.0.iter()
    }

    /// All is well unless there are complaints.
    pub(crate) fn of(complaints: impl IntoIterator<Item = Complaint>) -> Result<(), Self> {
        let complaints: BTreeSet<_> = complaints.into_iter().collect();
        if complaints.is_empty() {
            Ok(())
        } else {
            Err(Self(complaints))
        }
    }

    /// Joins the complaints of many results.
    pub(crate) fn all(results: impl IntoIterator<Item = Result<(), Self>>) -> Result<(), Self> {
        Self::of(
            results
                .into_iter()
                .filter_map(Result::err)
                .flat_map(|complaints| complaints.0),
        )
    }

    /// One complaint about a whole document.
    pub(crate) fn one(document: &str, message: &str) -> Self {
        let (document, message) = (document.to_owned(), message.trim_end().to_owned());
        Self(BTreeSet::from([Complaint {
            document,
            place: String::new(),
            message,
        }]))
    }
}

impl fmt::Display for Complaints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for complaint in &self.0 {
            writeln!(f, "{complaint}")?;
        }
        Ok(())
    }
}

/// As [`Display`](fmt::Display), so that `unwrap` in a test says something readable.
impl fmt::Debug for Complaints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl std::error::Error for Complaints {}

/// A place and a complaint, of a document that the judge knows only by its position.
pub(crate) type Finding = (String, String);

/// Findings by judge and digest of the document. Scripts and units repeat in every profile.
static JUDGED: Mutex<Option<HashMap<[u8; 32], Vec<Finding>>>> = Mutex::new(None);

/// Judges a batch of documents (name, text), each text once in this process: `run` gets only new ones,
/// without repetitions, and answers with the findings for each, in order.
pub(crate) fn judge_once(
    judge: &str,
    documents: &[(&str, &str)],
    run: impl FnOnce(&[&str]) -> Result<Vec<Vec<Finding>>>,
) -> Result<(), Complaints> {
    let key = |text: &str| -> [u8; 32] {
        Sha256::new()
            .chain_update(judge)
            .chain_update([0])
            .chain_update(text)
            .finalize()
            .into()
    };
    let mut new: Vec<([u8; 32], &str)> = documents.iter().map(|(_, text)| (key(text), *text)).collect();
    new.sort_unstable();
    new.dedup();
    with_judged(|judged| new.retain(|(key, _)| !judged.contains_key(key)));
    if !new.is_empty() {
        let texts: Vec<&str> = new.iter().map(|(_, text)| *text).collect();
        let answers = run(&texts)
            .and_then(|answers| {
                ensure!(
                    answers.len() == texts.len(),
                    "{} answers for {} documents",
                    answers.len(),
                    texts.len()
                );
                Ok(answers)
            })
            .map_err(|error| Complaints::one(judge, &format!("did not judge: {error:#}")))?; // or nobody would notice
        with_judged(|judged| judged.extend(new.iter().map(|(key, _)| *key).zip(answers)));
    }
    with_judged(|judged| {
        Complaints::of(documents.iter().flat_map(|(name, text)| {
            judged
                .get(&key(text))
                .into_iter()
                .flatten()
                .map(|(place, message)| Complaint {
                    document: (*name).to_owned(),
                    place: place.clone(),
                    message: message.clone(),
                })
        }))
    })
}

fn with_judged<T>(use_it: impl FnOnce(&mut HashMap<[u8; 32], Vec<Finding>>) -> T) -> T {
    let mut judged = JUDGED.lock();
    use_it(judged.get_or_insert_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_that_fails_or_forgets_a_document_is_a_complaint() {
        let complaints =
            judge_once("broken", &[("a", "x")], |_| anyhow::bail!("no such program")).unwrap_err();
        assert_eq!(complaints.to_string(), "broken: did not judge: no such program\n");
        let complaints = judge_once("forgetful", &[("a", "x")], |_| Ok(vec![])).unwrap_err();
        assert_eq!(
            complaints.to_string(),
            "forgetful: did not judge: 0 answers for 1 documents\n"
        );
    }
}
