//! Walks a syntax tree. The recursion is bounded by [`super::MAX_NESTING`].

use super::node::{Node, Operand, OperandKind, Pipeline, Tree};

impl Tree {
    /// Calls a function with every operand, those inside others too, and whether the cursor is still the data
    /// there: `with` and `range` move it.
    pub(crate) fn visit<'t>(&'t self, visitor: &mut Visitor<'_, 't>) {
        nodes(&self.root, true, visitor);
    }
}

type Visitor<'v, 't> = dyn FnMut(&'t Operand, bool) + 'v;

fn nodes<'t>(list: &'t [Node], of_data: bool, visitor: &mut Visitor<'_, 't>) {
    for node in list {
        match node {
            Node::Text(_) | Node::Break | Node::Continue => {}
            Node::Action(action) => pipeline(action, of_data, visitor),
            Node::If(branches) | Node::With(branches) => {
                let inside = of_data && matches!(node, Node::If(_));
                for (condition, arm) in &branches.arms {
                    pipeline(condition, of_data, visitor);
                    nodes(arm, inside, visitor);
                }
                nodes(&branches.otherwise, of_data, visitor);
            }
            Node::Range(range) => {
                pipeline(&range.over, of_data, visitor);
                nodes(&range.body, false, visitor);
                nodes(&range.otherwise, of_data, visitor);
            }
            Node::Template(include) => {
                if let Some(data) = &include.data {
                    pipeline(data, of_data, visitor);
                }
            }
        }
    }
}

fn pipeline<'t>(of: &'t Pipeline, of_data: bool, visitor: &mut Visitor<'_, 't>) {
    for command in &of.commands {
        for part in &command.operands {
            operand(part, of_data, visitor);
        }
    }
}

fn operand<'t>(of: &'t Operand, of_data: bool, visitor: &mut Visitor<'_, 't>) {
    visitor(of, of_data);
    match &of.kind {
        OperandKind::Pipeline(inner) => pipeline(inner, of_data, visitor),
        OperandKind::Chain(inner, _) => operand(inner, of_data, visitor),
        _ => {}
    }
}
