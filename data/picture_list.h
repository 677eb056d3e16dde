// The files of an image folder: ROOT/train/CLASS/*.jpg and ROOT/val/CLASS/*.jpg (or test),
// ImageNet's layout. Called by image_folder.cc. Lists are sorted bytewise, so that every machine
// numbers classes and pictures alike (P38).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "data/dataset.h"

namespace pando {

struct PictureFile {
  std::string name;  // of the file in its class's folder
  int32_t label = 0;
  uint64_t bytes = 0;
};

struct PictureList {
  std::string train_folder;
  std::string test_folder;
  std::vector<std::string> class_names;  // the folders in train_folder
  std::vector<PictureFile> train;
  std::vector<PictureFile> test;
  uint64_t ignored_files = 0;  // with other file endings
  uint64_t skipped_files = 0;  // left out by a skip list (skip_list.h)
};

// Errors: no such folder, no split, fewer than two classes, a class without pictures, a class of
// the test split that the training split lacks.
Result<PictureList> ListPictures(const std::string& root);

std::string PicturePath(const PictureList& list, Split split, const PictureFile& file);
// "train/ants/1.jpg": one line of UTF-8, the same on every machine, of at most 512 bytes.
std::string PictureName(const PictureList& list, Split split, const PictureFile& file);

}  // namespace pando
