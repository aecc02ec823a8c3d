"""Landmarks: thousands of centres of a table's rows, and the nearest of them for each row."""

from .assignment import Landmarks, ListMeans
from .training import landmark_count, train_landmarks, training_rows

__all__ = ["Landmarks", "ListMeans", "landmark_count", "train_landmarks", "training_rows"]
