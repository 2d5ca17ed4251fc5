//! Lists whose copies share what they have in common.
//!
//! The elements lie in blocks, and a change copies the block that it is in and the list of blocks: a model that puts one tensor
//! after the other into a sequence names each state of it.

use std::sync::Arc;

/// A block of twice as many elements is cut in two.
const BLOCK: usize = 32;

/// A list that is cheap to copy and to change in one place.
#[derive(Clone, Debug)]
pub(crate) struct Shared<T> {
    /// None of which is empty.
    blocks: Arc<Vec<Arc<Vec<T>>>>,
    len: usize,
}

impl<T: Clone> Shared<T> {
    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The elements in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flat_map(|b| b.iter())
    }

    /// The block that element `i` lies in and its place there, of the one behind the last the end of the last block.
    fn place(&self, mut i: usize) -> (usize, usize) {
        for (b, block) in self.blocks.iter().enumerate() {
            if i < block.len() || b + 1 == self.blocks.len() {
                return (b, i);
            }
            i -= block.len();
        }
        (0, i)
    }

    /// Element `i`, if there are so many.
    pub(crate) fn get(&self, i: usize) -> Option<&T> {
        let (b, i) = self.place(i);
        self.blocks.get(b)?.get(i)
    }

    /// Puts an element in front of element `i`, or behind the last one.
    pub(crate) fn insert(&mut self, i: usize, value: T) {
        let (b, i) = self.place(i);
        let blocks = Arc::make_mut(&mut self.blocks);
        match blocks.get_mut(b) {
            Some(block) => {
                let block = Arc::make_mut(block);
                block.insert(i, value);
                if block.len() == 2 * BLOCK {
                    let rest = block.split_off(BLOCK);
                    blocks.insert(b + 1, Arc::new(rest));
                }
            }
            None => blocks.push(Arc::new(vec![value])),
        }
        self.len += 1;
    }

    /// Takes element `i` out, which is there.
    pub(crate) fn remove(&mut self, i: usize) {
        let (b, i) = self.place(i);
        let blocks = Arc::make_mut(&mut self.blocks);
        Arc::make_mut(&mut blocks[b]).remove(i);
        if blocks[b].is_empty() {
            blocks.remove(b);
        }
        self.len -= 1;
    }
}

impl<T: Clone> FromIterator<T> for Shared<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Shared<T> {
        let all: Vec<T> = elements.into_iter().collect();
        let blocks = all.chunks(BLOCK).map(|c| Arc::new(c.to_vec())).collect();
        Shared { blocks: Arc::new(blocks), len: all.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_a_copy() {
        let (mut list, mut want) = (Shared::from_iter(0..100), (0..100).collect::<Vec<u32>>());
        let mut state = 1u32;
        for round in 0..2000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (before, i) = (list.clone(), (state >> 8) as usize % (want.len() + 1));
            // As often in as out, and for a while rather out.
            if round % 2 == 0 && round < 1500 || i == want.len() {
                list.insert(i, state);
                want.insert(i, state);
                assert_eq!((before.len() + 1, list.get(i)), (list.len(), Some(&state)));
            } else {
                list.remove(i);
                want.remove(i);
                assert_eq!(before.len(), list.len() + 1);
            }
            assert!(list.iter().eq(want.iter()) && list.len() == want.len());
            assert_eq!(list.get(want.len()), None);
        }
        while list.len() > 0 {
            list.remove(list.len() - 1);
        }
        list.insert(0, 7);
        assert!(list.iter().eq([7].iter()));
    }
}
