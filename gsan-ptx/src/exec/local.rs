//! Local memory of one thread: the stack of its call frames.

/// Bytes that take memory together. Small: most threads use little, and there are many.
const CHUNK: usize = 256;

/// Bytes that are 0 until they are written. Only what was written takes memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Local {
    bytes: usize,
    /// Up to the last that was written.
    chunks: Vec<Option<Box<[u8; CHUNK]>>>,
}

impl Local {
    /// `bytes` bytes of zeros.
    pub(super) fn new(bytes: usize) -> Local {
        Local {
            bytes,
            chunks: Vec::new(),
        }
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Whether `bytes` bytes from `start` on exist.
    #[inline]
    pub(super) fn contains(&self, start: usize, bytes: usize) -> bool {
        start < self.bytes && bytes <= self.bytes - start
    }

    /// Cuts off what lies behind `bytes` bytes, or adds zeros.
    pub(super) fn resize(&mut self, bytes: usize) {
        if bytes < self.bytes {
            self.chunks.truncate(bytes.div_ceil(CHUNK));
            let rest = bytes % CHUNK;
            if rest != 0
                && let Some(Some(chunk)) = self.chunks.get_mut(bytes / CHUNK)
            {
                let end = CHUNK.min(rest + self.bytes - bytes);
                chunk[rest..end].fill(0);
            }
        }
        self.bytes = bytes;
    }

    /// Reads bytes; those that do not exist are 0.
    #[inline]
    pub(super) fn read(&self, start: usize, into: &mut [u8]) {
        let (number, offset) = (start / CHUNK, start % CHUNK);
        if offset + into.len() <= CHUNK {
            match self.chunks.get(number) {
                Some(Some(chunk)) => into.copy_from_slice(&chunk[offset..offset + into.len()]),
                _ => into.fill(0),
            }
        } else {
            let (now, later) = into.split_at_mut(CHUNK - offset);
            self.read(start, now);
            for (index, part) in later.chunks_mut(CHUNK).enumerate() {
                self.read((number + 1 + index) * CHUNK, part);
            }
        }
    }

    /// Writes bytes that exist.
    #[inline]
    pub(super) fn write(&mut self, start: usize, bytes: &[u8]) {
        debug_assert!(bytes.is_empty() || self.contains(start, bytes.len()));
        let (number, offset) = (start / CHUNK, start % CHUNK);
        if offset + bytes.len() <= CHUNK {
            self.chunk(number)[offset..offset + bytes.len()].copy_from_slice(bytes);
        } else {
            let (now, later) = bytes.split_at(CHUNK - offset);
            self.write(start, now);
            for (index, part) in later.chunks(CHUNK).enumerate() {
                self.write((number + 1 + index) * CHUNK, part);
            }
        }
    }

    #[inline]
    fn chunk(&mut self, number: usize) -> &mut [u8; CHUNK] {
        if number >= self.chunks.len() {
            self.chunks.resize_with(number + 1, || None);
        }
        self.chunks[number].get_or_insert_with(|| Box::new([0; CHUNK]))
    }

    /// Copies bytes that exist to others, which do not overlap them.
    pub(super) fn copy(&mut self, from: usize, to: usize, bytes: usize) {
        let mut buffer = [0; CHUNK];
        let mut done = 0;
        while done < bytes {
            let part = &mut buffer[..CHUNK.min(bytes - done)];
            self.read(from + done, part);
            self.write(to + done, part);
            done += part.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resident(local: &Local) -> usize {
        local.chunks.iter().flatten().count() * CHUNK
    }

    #[test]
    fn memory_grows_with_bytes_written_not_with_bytes_declared() {
        let mut local = Local::new(16 << 20);
        let mut word = [1; 4];
        local.read(8 << 20, &mut word);
        assert_eq!((word, resident(&local)), ([0; 4], 0));
        local.write(8 << 20, &[7; 4]);
        local.read(8 << 20, &mut word);
        assert_eq!((word, resident(&local)), ([7; 4], CHUNK));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Resize(usize),
        Write(usize, Vec<u8>),
        Copy(usize, usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let place = 0..3 * CHUNK;
        let bytes = proptest::collection::vec(1_u8.., 0..2 * CHUNK + 9);
        prop_oneof![
            place.clone().prop_map(Step::Resize),
            (place.clone(), bytes).prop_map(|(start, bytes)| Step::Write(start, bytes)),
            (place.clone(), place, 0..CHUNK + 9).prop_map(|(a, b, n)| Step::Copy(a, b, n)),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_vector_of_bytes(steps in proptest::collection::vec(step(), 1..40)) {
            let (mut local, mut vector) = (Local::default(), Vec::new());
            for step in steps {
                match step {
                    Step::Resize(bytes) => {
                        local.resize(bytes);
                        vector.resize(bytes, 0);
                    }
                    Step::Write(start, bytes) if local.contains(start, bytes.len()) => {
                        local.write(start, &bytes);
                        vector[start..start + bytes.len()].copy_from_slice(&bytes);
                    }
                    Step::Copy(a, b, bytes)
                        if local.contains(a, bytes)
                            && local.contains(b, bytes)
                            && a.abs_diff(b) >= bytes =>
                    {
                        local.copy(a, b, bytes);
                        vector.copy_within(a..a + bytes, b);
                    }
                    Step::Write(..) | Step::Copy(..) => {}
                }
                let mut all = vec![9; local.len()];
                local.read(0, &mut all);
                prop_assert_eq!(&all, &vector);
            }
        }
    }
}
