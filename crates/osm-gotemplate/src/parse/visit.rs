//! Walks a syntax tree. The recursion is bounded by [`super::MAX_NESTING`].

use super::node::{Node, Operand, OperandKind, Pipeline, Tree};

impl Tree {
    /// Calls a function with every operand, those inside others too.
    pub(crate) fn visit<'t>(&'t self, visitor: &mut dyn FnMut(&'t Operand)) {
        nodes(&self.root, visitor);
    }
}

fn nodes<'t>(list: &'t [Node], visitor: &mut dyn FnMut(&'t Operand)) {
    for node in list {
        match node {
            Node::Text(_) | Node::Break | Node::Continue => {}
            Node::Action(action) => pipeline(action, visitor),
            Node::If(branches) | Node::With(branches) => {
                for (condition, arm) in &branches.arms {
                    pipeline(condition, visitor);
                    nodes(arm, visitor);
                }
                nodes(&branches.otherwise, visitor);
            }
            Node::Range(range) => {
                pipeline(&range.over, visitor);
                nodes(&range.body, visitor);
                nodes(&range.otherwise, visitor);
            }
            Node::Template(include) => {
                if let Some(data) = &include.data {
                    pipeline(data, visitor);
                }
            }
        }
    }
}

fn pipeline<'t>(of: &'t Pipeline, visitor: &mut dyn FnMut(&'t Operand)) {
    for command in &of.commands {
        for part in &command.operands {
            operand(part, visitor);
        }
    }
}

fn operand<'t>(of: &'t Operand, visitor: &mut dyn FnMut(&'t Operand)) {
    visitor(of);
    match &of.kind {
        OperandKind::Pipeline(inner) => pipeline(inner, visitor),
        OperandKind::Chain(inner, _) => operand(inner, visitor),
        _ => {}
    }
}
