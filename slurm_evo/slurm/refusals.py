"""Slurm's error texts, sorted by what they mean for the caller (slurm_errno.h, slurm_strerror)."""

from __future__ import annotations

from slurm_evo.model import Answer

_NO_CONTACT = (
    "unable to contact slurm controller",
    "unable to connect to database",
    "connection refused",
    "connect failure",
    "communication",
    "socket timed out",
    "timed out",
    "zero bytes were transmitted or received",
    "unexpected message received",
    "protocol authentication error",
    "slurmctld in standby",
    "slurm backup controller in standby mode",
    "unable to process configuration file",
    "could not establish a configuration source",
    "cannot stat file",
    "resource temporarily unavailable",
    "rate limit",
    "slurmdbd",
)
_GONE = (
    "job is no longer pending execution",
    "invalid job id specified",
    "job has already finished",
    "job/step already completing or completed",
    "job/step has already completed",
    "already completing or completed",
    "job is pending termination",
)
_NOT_NOW = ("try again",)
"""ESLURM_JOB_SETTING_DB_INX and its like. Of a federated job that a cluster is just trying to start Slurm says «no
longer pending» (``fed_mgr_job_lock``): it may well wait on."""


def no_contact(text: str) -> bool:
    """The controller or the database was not reached, so that nothing was said about the request."""
    return any(sign in text.lower() for sign in _NO_CONTACT)


def answer_of(text: str) -> Answer:
    """What a failed update means: UNKNOWN without contact, GONE if the job does not wait (now), else REFUSED."""
    if no_contact(text):
        return Answer.UNKNOWN
    if any(sign in text.lower() for sign in (*_GONE, *_NOT_NOW)):
        return Answer.GONE
    return Answer.REFUSED
