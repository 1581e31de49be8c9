//! A queue that nearly always holds at most one element, and then needs no memory of its own: most
//! messages have one send and one receive.

use std::collections::VecDeque;

/// None, one, or many.
#[derive(Clone, Debug, Default)]
pub(crate) enum Few<T> {
    /// Nothing.
    #[default]
    None,
    /// One element, in place.
    One(T),
    /// More than one at some time.
    Many(VecDeque<T>),
}

impl<T: Copy> Few<T> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Many(many) => many.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn get(&self, index: usize) -> Option<T> {
        match self {
            Self::One(one) if index == 0 => Some(*one),
            Self::None | Self::One(_) => None,
            Self::Many(many) => many.get(index).copied(),
        }
    }

    pub(crate) fn set(&mut self, index: usize, value: T) {
        match self {
            Self::One(one) if index == 0 => *one = value,
            Self::None | Self::One(_) => {}
            Self::Many(many) => {
                if let Some(place) = many.get_mut(index) {
                    *place = value;
                }
            }
        }
    }

    pub(crate) fn position(&self, wanted: impl Fn(T) -> bool) -> Option<usize> {
        match self {
            Self::None => None,
            Self::One(one) => wanted(*one).then_some(0),
            Self::Many(many) => many.iter().position(|value| wanted(*value)),
        }
    }

    pub(crate) fn push(&mut self, value: T) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(value),
            Self::One(one) => Self::Many(VecDeque::from([one, value])),
            Self::Many(mut many) => {
                many.push_back(value);
                Self::Many(many)
            }
        };
    }

    pub(crate) fn remove(&mut self, index: usize) {
        match self {
            Self::One(_) if index == 0 => *self = Self::None,
            Self::None | Self::One(_) => {}
            Self::Many(many) => {
                many.remove(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_a_queue_whatever_its_length() {
        let mut few = Few::default();
        let mut queue = Vec::new();
        for step in 0_u32..200 {
            if step * 7 % 5 < 3 {
                few.push(step);
                queue.push(step);
            } else if !queue.is_empty() {
                let index = step as usize % queue.len();
                few.remove(index);
                queue.remove(index);
            }
            if step % 4 == 0 && !queue.is_empty() {
                few.set(0, step);
                queue[0] = step;
            }
            assert_eq!((few.len(), few.is_empty()), (queue.len(), queue.is_empty()));
            for index in 0..queue.len() + 1 {
                assert_eq!(few.get(index), queue.get(index).copied());
            }
            assert_eq!(
                few.position(|value| value % 3 == 0),
                queue.iter().position(|value| value % 3 == 0)
            );
        }
    }
}
