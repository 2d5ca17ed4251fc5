//! What an operator may ask about its node, in inference as in lowering.

use super::error::{Reason, Res};
use super::resolve::{Resolved, ResolvedNode, ValueId};
use crate::onnx::Attribute;
use crate::tensor::{DType, HostTensor};

/// Questions about the current node.
pub(crate) trait Ask<'m> {
    /// The model and the number of the node.
    fn place(&self) -> (&'m Resolved<'m>, usize);

    /// Element type of a value.
    fn dtype(&self, v: ValueId) -> DType;

    /// Number of dimensions of a value.
    fn rank(&self, v: ValueId) -> usize;

    /// The value, if it is known at compile time.
    fn constant(&self, v: ValueId) -> Option<&HostTensor>;

    /// The node.
    fn node(&self) -> &'m ResolvedNode<'m> {
        let (resolved, node) = self.place();
        &resolved.nodes[node]
    }

    /// Version of the operator set.
    fn opset(&self) -> i64 {
        self.place().0.model.opset()
    }

    /// Input `i`, which has to be given.
    fn input(&self, i: usize) -> Res<ValueId> {
        self.optional(i).ok_or(Reason::MissingInput(i))
    }

    /// Input `i` if it is given.
    fn optional(&self, i: usize) -> Option<ValueId> {
        self.node().inputs.get(i).copied().flatten()
    }

    /// All given inputs.
    fn inputs(&self) -> Vec<ValueId> {
        self.node().inputs.iter().flatten().copied().collect()
    }

    /// True when somebody reads output `i`.
    fn wants(&self, i: usize) -> bool {
        self.node().outputs.get(i).copied().flatten().is_some()
    }

    /// Input `i`, which has to be known at compile time.
    fn known(&self, i: usize, what: &str) -> Res<&HostTensor> {
        let v = self.input(i)?;
        self.constant(v).ok_or_else(|| Reason::NotConstant { what: what.into(), input: i })
    }

    /// The integers of input `i`, which has to be known at compile time.
    fn const_ints(&self, i: usize, what: &str) -> Res<Vec<i64>> {
        let t = self.known(i, what)?;
        if t.dtype().is_float() {
            return Err(Reason::Type(format!("{what} (input {i}) has type {}; integers are needed", t.dtype())));
        }
        Ok(t.to_i64())
    }

    /// The numbers of input `i`, which has to be known at compile time.
    fn const_floats(&self, i: usize, what: &str) -> Res<Vec<f64>> {
        Ok(self.known(i, what)?.to_f64())
    }

    /// The one number of input `i`, which has to be known at compile time, or `None` where it is left out.
    fn scalar(&self, i: usize, what: &str) -> Res<Option<f64>> {
        if self.optional(i).is_none() {
            return Ok(None);
        }
        match self.const_floats(i, what)?[..] {
            [number] => Ok(Some(number)),
            ref other => Err(Reason::Shape(format!("{what} (input {i}) is {} numbers, not one", other.len()))),
        }
    }

    /// Attribute `name`, if it is given.
    fn attribute(&self, name: &str) -> Option<&'m Attribute> {
        self.node().node.attributes.get(name)
    }

    /// An integer attribute.
    fn int(&self, name: &str, default: i64) -> Res<i64> {
        match self.attribute(name) {
            None => Ok(default),
            Some(Attribute::Int(v)) => Ok(*v),
            Some(_) => Err(Reason::attribute(name, "is not an integer")),
        }
    }

    /// A float attribute.
    fn float(&self, name: &str, default: f64) -> Res<f64> {
        match self.attribute(name) {
            // Attributes are single floats, those not given too.
            None => Ok(default as f32 as f64),
            Some(Attribute::Float(v)) => Ok(*v as f64),
            Some(Attribute::Int(v)) => Ok(*v as f64),
            Some(_) => Err(Reason::attribute(name, "is not a number")),
        }
    }

    /// A list of integers.
    fn ints(&self, name: &str) -> Res<Option<Vec<i64>>> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Ints(v)) => Ok(Some(v.clone())),
            Some(_) => Err(Reason::attribute(name, "is not a list of integers")),
        }
    }

    /// A text attribute.
    fn text(&self, name: &str, default: &'m str) -> Res<&'m str> {
        match self.attribute(name) {
            None => Ok(default),
            Some(Attribute::Text(v)) => Ok(v),
            Some(_) => Err(Reason::attribute(name, "is not a text")),
        }
    }

    /// An element type by its number in ONNX.
    fn type_attribute(&self, name: &str, default: DType) -> Res<DType> {
        match self.int(name, 0)? {
            0 => Ok(default),
            code => i32::try_from(code)
                .ok()
                .and_then(DType::from_onnx)
                .ok_or_else(|| Reason::attribute(name, format!("is type {code}, which is not supported"))),
        }
    }

    /// `axis`, which may count from the end, within `rank` dimensions.
    fn axis(&self, axis: i64, rank: usize) -> Res<usize> {
        let r = rank as i64;
        if (-r..r).contains(&axis) {
            Ok((if axis < 0 { axis + r } else { axis }) as usize)
        } else {
            Err(Reason::Shape(format!("axis {axis} is outside the {rank} dimensions")))
        }
    }
}
