//! When processes that share memory forget together.
//!
//! Each rank has a *mark*, a word that its process alone writes and all read. So it works where
//! nobody can exchange words of the others' memory, as hosts cannot with the memory of GPUs. A mark has a
//! generation, which counts restarts, and says whether the rank is busy, idle, claiming, or zeroing.
//!
//! A rank is idle when its process knows that everything on it has finished. Who is idle and finds all
//! others idle *claims*, looks again, and if they still are, the restart is decided: it goes to the next
//! generation and zeroes what is its own. A launch makes the rank busy and looks, too. It meets nobody who
//! claims: then it goes ahead, and whoever claims later finds it busy. It meets a claim: then it
//! waits until that was given up or decided. It meets the next generation: then it was counted among the
//! idle ones and joins, which means that it zeroes what is its own. Then it waits until nobody zeroes or is
//! behind. That is the only thing a launch waits for: no work of others, and no other launch.
//!
//! Who claims and who launches both write their own mark first and look at the others' then, with a
//! sequentially consistent fence between (Dekker's algorithm), so one of two sees the other.

use crate::atomics::Essential;

/// What a rank does, as all others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// It launches.
    Busy,
    /// It has nothing to do, and looks before its next launch.
    Idle,
    /// It is idle, and has found all others idle.
    Claiming,
    /// It zeroes what is its own, for the generation of its mark.
    Zeroing,
}

/// The mark of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// How many restarts it has taken part in, modulo 2^29.
    pub generation: u32,
    /// What it does.
    pub state: State,
    /// Something of it is worn: it wants a restart.
    pub worn: bool,
}

const GENERATIONS: u32 = 1 << 29;
const WORN: u32 = 4;

impl Mark {
    /// As a word. 0 is a busy rank that has not restarted.
    pub const fn word(self) -> u32 {
        let worn = if self.worn { WORN } else { 0 };
        self.generation << 3 | worn | self.state as u32
    }

    /// From a word.
    pub const fn from_word(word: u32) -> Mark {
        Mark {
            generation: word >> 3,
            state: match word & 3 {
                0 => State::Busy,
                1 => State::Idle,
                2 => State::Claiming,
                _ => State::Zeroing,
            },
            worn: word & WORN != 0,
        }
    }
}

/// The words of all ranks of a group.
pub trait MarkWords {
    /// Why a word cannot be reached.
    type Error;

    /// The mark of a rank of another process.
    ///
    /// # Errors
    /// When it cannot be read.
    fn others(&self, each: &mut dyn FnMut(Mark)) -> Result<(), Self::Error>;

    /// Writes the marks of this process's ranks.
    ///
    /// # Errors
    /// When they cannot be written.
    fn write(&self, mark: Mark) -> Result<(), Self::Error>;

    /// Orders a write before the reads after it, for all; essential for [`Essential::MarkBeforeLook`].
    fn fence(&self, what: Essential);
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Before a launch: go ahead. After an attempt to restart: others are busy.
    GoOn,
    /// Others decide or zero at the moment: try again.
    Wait,
    /// The restart is decided: zero, and say [`Member::zeroed`].
    Zero,
}

/// A process of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    generation: u32,
    state: State,
    worn: bool,
}

impl Default for Member {
    fn default() -> Self {
        Member {
            generation: 0,
            state: State::Busy,
            worn: false,
        }
    }
}

impl Member {
    /// How many restarts it has taken part in.
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// What it does, as the others see it.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The generation after the next restart.
    pub const fn following(&self) -> u32 {
        self.next()
    }

    const fn next(&self) -> u32 {
        (self.generation + 1) % GENERATIONS
    }

    fn write<W: MarkWords>(&mut self, words: &W, state: State) -> Result<(), W::Error> {
        self.state = state;
        words.write(Mark {
            generation: self.generation,
            state,
            worn: self.worn,
        })
    }

    /// What the others do: whether one is ahead, whether one is behind or zeroes, whether one claims, and
    /// whether all are idle.
    fn look<W: MarkWords>(&self, words: &W) -> Result<Look, W::Error> {
        let mut look = Look {
            idle: true,
            ..Look::default()
        };
        let next = self.next();
        words.others(&mut |mark| {
            look.ahead |= mark.generation == next;
            let here = mark.generation == self.generation;
            look.unready |= !here && mark.generation != next || mark.state == State::Zeroing;
            look.claimed |= here && mark.state == State::Claiming;
            look.idle &= here && matches!(mark.state, State::Idle | State::Claiming);
        })?;
        Ok(look)
    }

    /// Whether another rank wants a restart.
    ///
    /// # Errors
    /// When a mark cannot be read.
    pub fn is_asked<W: MarkWords>(&self, words: &W) -> Result<bool, W::Error> {
        let mut asked = false;
        words.others(&mut |mark| asked |= mark.worn || mark.generation == self.next())?;
        Ok(asked)
    }

    /// Says whether something of this process is worn.
    ///
    /// # Errors
    /// When a mark cannot be written.
    pub fn is_worn<W: MarkWords>(&mut self, words: &W, worn: bool) -> Result<(), W::Error> {
        self.worn = worn;
        self.write(words, self.state)
    }

    /// Nothing runs on any rank of this process.
    ///
    /// # Errors
    /// When a mark cannot be written.
    pub fn idle<W: MarkWords>(&mut self, words: &W) -> Result<(), W::Error> {
        self.write(words, State::Idle)
    }

    /// Restarts, if this process is idle and all others are, or if others have decided to.
    ///
    /// # Errors
    /// When a mark cannot be read or written.
    pub fn try_restart<W: MarkWords>(&mut self, words: &W) -> Result<Next, W::Error> {
        if self.state != State::Idle {
            return Ok(Next::GoOn);
        }
        let look = self.look(words)?;
        if !look.ahead {
            if !look.idle {
                return Ok(Next::GoOn);
            }
            self.write(words, State::Claiming)?;
            words.fence(Essential::MarkBeforeLook);
            let look = self.look(words)?;
            if !look.ahead && !look.idle {
                self.write(words, State::Idle)?;
                return Ok(Next::GoOn);
            }
        }
        self.zero(words)?;
        Ok(Next::Zero)
    }

    fn zero<W: MarkWords>(&mut self, words: &W) -> Result<(), W::Error> {
        self.generation = self.next();
        self.write(words, State::Zeroing)
    }

    /// What is this process's own is zero.
    ///
    /// # Errors
    /// When a mark cannot be written.
    pub fn zeroed<W: MarkWords>(&mut self, words: &W) -> Result<(), W::Error> {
        self.worn = false;
        words.fence(Essential::RestartDone);
        self.write(words, State::Idle)
    }

    /// A launch comes.
    ///
    /// # Errors
    /// When a mark cannot be read or written.
    pub fn launch<W: MarkWords>(&mut self, words: &W) -> Result<Next, W::Error> {
        if self.state != State::Busy {
            self.write(words, State::Busy)?;
            words.fence(Essential::MarkBeforeLook);
        }
        let look = self.look(words)?;
        if look.ahead {
            self.zero(words)?;
            return Ok(Next::Zero);
        }
        if look.claimed || look.unready {
            return Ok(Next::Wait);
        }
        // What the others zeroed comes before the launch.
        words.fence(Essential::RestartDone);
        Ok(Next::GoOn)
    }
}

#[derive(Default)]
struct Look {
    ahead: bool,
    unready: bool,
    claimed: bool,
    idle: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use core::convert::Infallible;

    /// Words of one process each.
    struct Words<'w> {
        words: &'w RefCell<Vec<u32>>,
        own: usize,
    }

    impl MarkWords for Words<'_> {
        type Error = Infallible;

        fn others(&self, each: &mut dyn FnMut(Mark)) -> Result<(), Infallible> {
            for (at, &word) in self.words.borrow().iter().enumerate() {
                if at != self.own {
                    each(Mark::from_word(word));
                }
            }
            Ok(())
        }

        fn write(&self, mark: Mark) -> Result<(), Infallible> {
            self.words.borrow_mut()[self.own] = mark.word();
            Ok(())
        }

        fn fence(&self, _: Essential) {}
    }

    #[test]
    fn marks_are_words() {
        for state in [State::Busy, State::Idle, State::Claiming, State::Zeroing] {
            for worn in [false, true] {
                let mark = Mark {
                    generation: GENERATIONS - 1,
                    state,
                    worn,
                };
                assert_eq!(Mark::from_word(mark.word()), mark);
            }
        }
        assert_eq!(Mark::from_word(0).state, State::Busy);
    }

    #[test]
    fn all_are_idle_before_a_restart_and_have_zeroed_before_a_launch() {
        let words = RefCell::new(vec![0; 3]);
        let of = |own| Words { words: &words, own };
        let mut members = [Member::default(); 3];
        members[0].is_worn(&of(0), true).unwrap();
        assert_eq!(members[2].is_asked(&of(2)), Ok(true));
        for at in [0, 1] {
            members[at].idle(&of(at)).unwrap();
            assert_eq!(members[at].try_restart(&of(at)), Ok(Next::GoOn));
        }
        // Nobody restarts while this one is busy again.
        assert_eq!(members[1].launch(&of(1)), Ok(Next::GoOn));
        members[2].idle(&of(2)).unwrap();
        assert_eq!(members[2].try_restart(&of(2)), Ok(Next::GoOn));
        members[1].idle(&of(1)).unwrap();
        assert_eq!(members[1].try_restart(&of(1)), Ok(Next::Zero));
        // The first one is asked to by its next launch, the last one by its next look.
        assert_eq!(members[0].launch(&of(0)), Ok(Next::Zero));
        members[0].zeroed(&of(0)).unwrap();
        assert_eq!(members[0].launch(&of(0)), Ok(Next::Wait));
        members[1].zeroed(&of(1)).unwrap();
        assert_eq!(members[0].launch(&of(0)), Ok(Next::Wait));
        assert_eq!(members[2].try_restart(&of(2)), Ok(Next::Zero));
        assert_eq!(members[0].launch(&of(0)), Ok(Next::Wait));
        members[2].zeroed(&of(2)).unwrap();
        for (at, member) in members.iter_mut().enumerate() {
            assert_eq!(member.launch(&of(at)), Ok(Next::GoOn));
            assert_eq!(member.generation(), 1);
        }
        assert_eq!(members[2].is_asked(&of(2)), Ok(false));
    }

    #[test]
    fn a_claim_that_is_given_up_lets_launches_go_on() {
        let words = RefCell::new(vec![0; 2]);
        let of = |own| Words { words: &words, own };
        let mut member = Member::default();
        let claim = |state| {
            let mark = Mark {
                generation: 0,
                state,
                worn: false,
            };
            words.borrow_mut()[1] = mark.word();
        };
        member.idle(&of(0)).unwrap();
        claim(State::Claiming);
        assert_eq!(member.launch(&of(0)), Ok(Next::Wait));
        claim(State::Idle);
        assert_eq!(member.launch(&of(0)), Ok(Next::GoOn));
    }
}
