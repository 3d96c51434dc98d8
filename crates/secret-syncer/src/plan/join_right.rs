//! When the API server has to be asked again what tokens may do to join.

use std::time::Duration;

/// Tokens of all pools join with the same rights, unless another program has bound a single one. So an answer is good for this long.
pub const JOIN_RIGHT_TTL: Duration = Duration::from_secs(300);

/// The API server is not asked more often than this, however often rights change.
pub const QUESTION_INTERVAL: Duration = Duration::from_secs(10);

/// How long to wait before the next question; `asked`: how long ago the last one was.
pub fn pause(asked: Option<Duration>) -> Option<Duration> {
    let left = QUESTION_INTERVAL.saturating_sub(asked?);
    (!left.is_zero()).then_some(left)
}

/// With whose token the next question is asked. Nearly every binding is for all pools, and shows with any of them. One for a single pool shows
/// only with the token of that pool, so all have their turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// The account for which everything is approved. It is asked until that has ended.
    open: Option<String>,
    /// The last account whose turn has ended, by name.
    last: String,
    /// Accounts that have not had their turn since rights changed.
    left: usize,
}

impl Turns {
    /// Whose turn it is.
    pub fn next<'a>(&self, accounts: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
        let open = self.open.as_deref();
        let later = accounts.clone().filter(|account| *account > self.last.as_str());
        let open = accounts.clone().find(|account| Some(*account) == open);
        open.or_else(|| later.min()).or_else(|| accounts.min())
    }

    /// Notes an answer; returns when to ask again. The API server learns of a change of rights by a watch of its own, so the first answer after
    /// a change may be an old one. It ends the turn of its account all the same, and the account has another turn as the last one of the round:
    /// else no other account would have its turn while rights change all the time.
    pub fn answered(&mut self, account: &str, is_open: bool, has_changed: bool, accounts: usize) -> Duration {
        self.open = is_open.then(|| account.to_owned());
        if !is_open {
            account.clone_into(&mut self.last);
            self.left = self.left.saturating_sub(1);
        }
        if has_changed {
            self.left = accounts;
        }
        match has_changed || (self.left > 0 && !is_open) {
            true => QUESTION_INTERVAL,
            false => JOIN_RIGHT_TTL,
        }
    }
}

/// `found`: how long ago a token was last found to be allowed to join.
pub fn has_to_be_asked(found: Option<Duration>) -> bool {
    found.is_none_or(|ago| ago >= JOIN_RIGHT_TTL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yes_is_good_for_five_minutes() {
        for (found, expected) in [
            (None, true),
            (Some(0), false),
            (Some(299), false),
            (Some(300), true),
        ] {
            assert_eq!(
                has_to_be_asked(found.map(Duration::from_secs)),
                expected,
                "{found:?}"
            );
        }
    }

    #[test]
    fn questions_have_an_interval() {
        let seconds = Duration::from_secs;
        for (asked, expected) in [
            (None, None),
            (Some(0), Some(10)),
            (Some(9), Some(1)),
            (Some(10), None),
            (Some(300), None),
        ] {
            assert_eq!(pause(asked.map(seconds)), expected.map(seconds), "{asked:?}");
        }
    }

    const ACCOUNTS: [&str; 3] = ["b", "c", "a"];

    /// Asks as often as there are `answers`, of which the first is right after a change of rights; gives who was asked, and when again.
    fn asked(turns: &mut Turns, answers: &[bool]) -> Vec<(&'static str, Duration)> {
        let answers = answers.iter().enumerate();
        answers
            .map(|(number, is_open)| {
                let account = turns.next(ACCOUNTS.into_iter()).unwrap();
                let again = turns.answered(account, *is_open, number == 0, ACCOUNTS.len());
                (account, again)
            })
            .collect()
    }

    #[test]
    fn after_a_change_of_rights_all_are_asked_one_after_the_other_and_then_one_from_time_to_time() {
        let (soon, later) = (QUESTION_INTERVAL, JOIN_RIGHT_TTL);
        let mut turns = Turns::default();
        let expected = [
            ("a", soon),
            ("b", soon),
            ("c", soon),
            ("a", later),
            ("b", later),
            ("c", later),
        ];
        assert_eq!(asked(&mut turns, &[false; 6]), expected);
        let expected = [("a", soon), ("b", soon), ("c", soon), ("a", later)];
        assert_eq!(asked(&mut turns, &[false; 4]), expected, "the next change");
        assert_eq!(turns.next([].into_iter()), None);
        assert_eq!(turns.next(["a"].into_iter()), Some("a"), "the others are gone");
    }

    #[test]
    fn while_rights_change_before_each_question_all_are_asked() {
        let mut turns = Turns::default();
        // The first of all answers is right after a change, and here each is the first.
        let seen: Vec<_> = ACCOUNTS
            .into_iter()
            .flat_map(|_| asked(&mut turns, &[false]))
            .collect();
        assert_eq!(seen, ["a", "b", "c"].map(|account| (account, QUESTION_INTERVAL)));
    }

    /// Else the condition would come and go with the turns of the others.
    #[test]
    fn an_account_for_which_all_is_approved_keeps_its_turn() {
        let (soon, later) = (QUESTION_INTERVAL, JOIN_RIGHT_TTL);
        let mut turns = Turns::default();
        let expected = [("a", soon), ("b", soon), ("c", later), ("c", later)];
        assert_eq!(asked(&mut turns, &[false, false, true, true]), expected);
        // The first answer after the binding was deleted is still an old one.
        let expected = [("c", soon), ("c", soon), ("a", soon), ("b", later)];
        assert_eq!(asked(&mut turns, &[true, false, false, false]), expected);
        asked(&mut turns, &[true]);
        assert_eq!(turns.next(["x", "y"].into_iter()), Some("x"), "it is gone");
    }
}
