//! What a pool's tokens are bound to. When one of these objects is gone or is another one, the tokens are invalid.

/// Value of the annotation [`osm_api::names::BOUND_TO`] for objects with these uids; `None` where one is missing. `shared`: those of
/// `osm-node-bootstrap` and of the token binding Secret, in the mode in which all pools share an account.
pub fn bound_to(account: Option<&str>, shared: Option<[Option<&str>; 2]>) -> Option<String> {
    let uids = std::iter::once(account).chain(shared.into_iter().flatten());
    let uids: Option<Vec<&str>> = uids.collect();
    uids.map(|uids| uids.join("/"))
}

/// Whether tokens with this [`bound_to`] open nothing any more, because the pool's ServiceAccount is another one now. A text that was
/// altered proves nothing.
pub fn is_of_another_account(recorded: &str, account: &str) -> bool {
    let of = recorded.split('/').next().unwrap_or_default();
    !of.is_empty() && of != account
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_invalid_with_their_account() {
        assert_eq!(
            bound_to(Some("a"), Some([Some("n"), Some("b")])).as_deref(),
            Some("a/n/b")
        );
        assert_eq!(bound_to(Some("a"), Some([Some("n"), None])), None);
        for (recorded, expected) in [
            ("a", false),
            ("a/n/b", false),
            ("other", true),
            ("other/n/b", true),
            ("", false),
        ] {
            assert_eq!(is_of_another_account(recorded, "a"), expected, "{recorded}");
        }
    }
}
