"""Landmarks: thousands of centres among a table's rows, each row belonging to the nearest."""

from .assignment import Landmarks, ListSums
from .training import landmark_count, train_landmarks, training_rows

__all__ = ["Landmarks", "ListSums", "landmark_count", "train_landmarks", "training_rows"]
