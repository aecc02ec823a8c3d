"""Landmarks: thousands of centres of a table's rows, and the two of them that list each row."""

from .assignment import Landmarks
from .signs import sign_mean
from .training import landmark_count, train_landmarks, training_rows

__all__ = ["Landmarks", "landmark_count", "sign_mean", "train_landmarks", "training_rows"]
