//! Actions: those that control the flow, and pipelines whose value is written.

use super::node::{Branches, Include, Loop, Node};
use super::parser::{Ending, Item, Parsed, Parser};
use super::token::{Keyword, Kind, Token};

/// Go has no such limit, because its stacks grow.
const TOO_DEEP: &str = "blocks are nested too deeply";

impl<'s> Parser<'s> {
    /// What comes after a left delimiter. It only delegates, so that nested blocks take little of the stack.
    pub(super) fn action(&mut self) -> Parsed<Item> {
        let token = self.next_non_space();
        let Kind::Keyword(keyword) = token.kind else {
            return self.output();
        };
        match keyword {
            Keyword::Block => self.block(),
            Keyword::Break => self.jump("{{break}}", Node::Break),
            Keyword::Continue => self.jump("{{continue}}", Node::Continue),
            Keyword::Else => self.otherwise(),
            Keyword::End => self.end(),
            Keyword::If | Keyword::With => self.branches(keyword),
            Keyword::Range => self.range(),
            Keyword::Template => self.include(),
            Keyword::Define | Keyword::Nil => self.output(),
        }
    }

    fn end(&mut self) -> Parsed<Item> {
        self.expect(Kind::RightDelimiter, "end")?;
        Ok(Item::Ending(Ending::End))
    }

    /// A pipeline whose value is written. Its first token has been read.
    fn output(&mut self) -> Parsed<Item> {
        self.back_up();
        self.peek();
        let pipeline = self.pipeline("command", Kind::RightDelimiter)?;
        Ok(Item::Node(Node::Action(pipeline)))
    }

    fn jump(&mut self, text: &str, node: Node) -> Parsed<Item> {
        let token = self.next_non_space();
        if token.kind != Kind::RightDelimiter {
            return self.unexpected(token, text);
        }
        if self.body.ranges == 0 {
            return self.fail_at_action(format!("{text} outside {{{{range}}}}"));
        }
        Ok(Item::Node(node))
    }

    /// `{{else}}`, or the start of `{{else if …}}`, whose keyword is left to be read.
    fn otherwise(&mut self) -> Parsed<Item> {
        let token = self.peek_non_space();
        if !matches!(token.kind, Kind::Keyword(Keyword::If | Keyword::With)) {
            self.expect(Kind::RightDelimiter, "else")?;
        }
        Ok(Item::Ending(Ending::Else))
    }

    /// The rest of an `if` or `with`. A chain of `else if`s has one `end`.
    fn branches(&mut self, keyword: Keyword) -> Parsed<Item> {
        let context = if keyword == Keyword::If { "if" } else { "with" };
        let mark = self.body.scope.mark();
        self.enter(TOO_DEEP)?;
        let mut branches = Branches::default();
        loop {
            let condition = self.pipeline(context, Kind::RightDelimiter)?;
            let (nodes, ending) = self.item_list()?;
            branches.arms.push((condition, nodes));
            if ending == Ending::End {
                break;
            }
            if self.peek().kind != Kind::Keyword(keyword) {
                branches.otherwise = self.last_branch()?;
                break;
            }
            self.next();
        }
        self.leave();
        self.body.scope.release(mark);
        Ok(Item::Node(match keyword {
            Keyword::If => Node::If(branches),
            _ => Node::With(branches),
        }))
    }

    fn last_branch(&mut self) -> Parsed<Vec<Node>> {
        let (nodes, ending) = self.item_list()?;
        if ending != Ending::End {
            return self.fail_at_action(format!("expected end; found {}", ending.describe()));
        }
        Ok(nodes)
    }

    fn range(&mut self) -> Parsed<Item> {
        let mark = self.body.scope.mark();
        self.enter(TOO_DEEP)?;
        let over = self.pipeline("range", Kind::RightDelimiter)?;
        self.body.ranges = self.body.ranges.saturating_add(1);
        let (body, ending) = self.item_list()?;
        self.body.ranges = self.body.ranges.saturating_sub(1);
        let otherwise = match ending {
            Ending::Else => self.last_branch()?,
            Ending::End => Vec::new(),
        };
        self.leave();
        self.body.scope.release(mark);
        Ok(Item::Node(Node::Range(Box::new(Loop {
            over,
            body,
            otherwise,
        }))))
    }

    /// `{{block "name" pipeline}}` defines a template and includes it.
    fn block(&mut self) -> Parsed<Item> {
        const CONTEXT: &str = "block clause";
        self.enter(TOO_DEEP)?;
        let token = self.next_non_space();
        let name = self.template_name(token, CONTEXT)?;
        let data = self.pipeline(CONTEXT, Kind::RightDelimiter)?;
        let outer = self.start_body();
        let ending = self.rest_of_body(name.as_str().into())?;
        self.body = *outer;
        self.expect_end(ending, CONTEXT)?;
        self.leave();
        Ok(Item::Node(Node::Template(Box::new(Include {
            position: token.position,
            name: name.into(),
            data: Some(data),
        }))))
    }

    fn include(&mut self) -> Parsed<Item> {
        const CONTEXT: &str = "template clause";
        let token = self.next_non_space();
        let name = self.template_name(token, CONTEXT)?;
        let data = if self.next_non_space().kind == Kind::RightDelimiter {
            None
        } else {
            self.back_up();
            Some(self.pipeline(CONTEXT, Kind::RightDelimiter)?)
        };
        Ok(Item::Node(Node::Template(Box::new(Include {
            position: token.position,
            name: name.into(),
            data,
        }))))
    }

    fn template_name(&self, token: Token<'s>, context: &str) -> Parsed<String> {
        match token.kind {
            Kind::String | Kind::RawString => self.unquote(token),
            _ => self.unexpected(token, context),
        }
    }
}
